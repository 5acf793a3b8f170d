package filelock_test

import (
	"context"
	"fmt"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/filelock"
)

func Example() {
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	locks := fencelock.New(filelock.New(dir, nil), nil)
	err = locks.Do(context.Background(), "nightly-report", func(ctx context.Context) error {
		_, locked := fencelock.TokenFrom(ctx)
		fmt.Println("only one process of this host is here:", locked)
		return nil
	})
	fmt.Println(err)
	// Output:
	// only one process of this host is here: true
	// <nil>
}
