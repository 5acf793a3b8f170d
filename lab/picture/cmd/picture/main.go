// Command picture draws the pictures of the documentation again, from the data next to them.
//
//	go run -C lab ./picture/cmd/picture ../docs
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencelock/fencelock/lab/picture"
)

func main() {
	if err := draw(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// draw writes all pictures below the directory of the documentation.
func draw(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: picture DOCS")
	}
	all, err := picture.Draw(args[0])
	if err != nil {
		return err
	}
	for file, text := range all {
		if err := os.WriteFile(filepath.Join(args[0], "pictures", file), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
