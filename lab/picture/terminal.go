package picture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// said is a line of fencelock demo --json.
type said struct {
	At   int64  `json:"at_ms"`
	Who  string `json:"who"`
	Text string `json:"text"`
}

// drawDemo draws a terminal with the output of fencelock demo --json.
func drawDemo(lines []byte) ([]byte, error) {
	c := new(canvas)
	const title = "fencelock demo"
	const column = 7.85 // the width of a character
	for i, class := range []string{"red", "amber", "green"} {
		c.dot(22+float64(i)*18, 21, 5.5, class)
	}
	c.text(width/2, 26, "small pale mid", "a terminal: half a minute, with real processes")
	c.line(1, 40, width-1, 40, "rule")
	y := 64.0
	c.text(16, y, "mono", "$ fencelock demo")
	colours := map[string]string{"worker A": "blue", "worker B": "green", "guarded.txt": "amber", "plain.txt": "red", "server": "pale", "demo": "pale"}
	description := "The output of fencelock demo:"
	for d := json.NewDecoder(bytes.NewReader(lines)); ; {
		var l said
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the output of the demo: %w", err)
		}
		for i, text := range wrap(l.Text, 57) {
			y += 19
			if i == 0 {
				c.text(16, y, "mono pale", fmt.Sprintf("%4.1f s", float64(l.At)/1000))
				c.text(16+8*column, y, "mono "+colours[l.Who], l.Who)
			}
			c.text(16+20.5*column, y, "mono", text)
		}
		description += fmt.Sprintf(" %s %s.", l.Who, l.Text)
	}
	return c.svg(y+20, title, description), nil
}
