// Package picture draws the pictures of the documentation as SVG, from data that measurements and
// runs of real processes have left in docs/pictures. It needs no library, so that the tests of this
// module check that each picture shows its data.
//
//	make pictures
package picture

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// picture is a file in docs/pictures, and what it is drawn from.
type picture struct {
	file string // without .svg
	data string // below docs
	draw func(data []byte) ([]byte, error)
}

// pictures are all of them.
var pictures = []picture{
	{"benchmarks", "../lab/bench/results.md", drawBenchmarks},
	{"demo", "pictures/demo.jsonl", drawDemo},
	{"handover", "pictures/handover.json", drawn[Handover]},
	{"turns", "pictures/turns.json", drawn[Turns]},
	{"cost", "pictures/cost.json", drawn[Cost]},
	{"frozen", "pictures/frozen.json", drawn[Timeline]},
	{"failover", "pictures/failover.json", drawn[Timeline]},
	{"board", "pictures/board.json", drawn[Board]},
}

// drawn draws data of a type.
func drawn[T interface{ draw() []byte }](data []byte) ([]byte, error) {
	var t T
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, err
	}
	return t.draw(), nil
}

// Draw draws all pictures. docs is the directory of the documentation. The result has the contents
// by file name.
func Draw(docs string) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, p := range pictures {
		data, err := os.ReadFile(filepath.Join(docs, p.data))
		if err == nil {
			all[p.file+".svg"], err = p.draw(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.file, err)
		}
	}
	return all, nil
}

// Store writes the data of a picture to docs/pictures.
func Store(docs, file string, data any) error {
	if !slices.ContainsFunc(pictures, func(p picture) bool { return p.data == "pictures/"+file }) {
		return fmt.Errorf("no picture is drawn from %s", file)
	}
	text, err := json.MarshalIndent(data, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "pictures", file), append(text, '\n'), 0o644)
}
