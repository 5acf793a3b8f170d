package picture

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// benchmarkRow is a row of lab/bench/results.md that is drawn, and its title.
type benchmarkRow struct{ row, title string }

var benchmarkRows = []benchmarkRow{
	{"hand-over to a waiting process, p50", "A released lock reaches a waiting process, median (redislock and redsync poll)"},
	{"acquire and release, uncontended", "Acquire and release, without contention"},
	{"acquire and release, 256 goroutines with a name each", "Acquire and release, 256 goroutines with a name each"},
}

// contestantsDrawn are those of the table that are drawn, in this order.
var contestantsDrawn = []string{"fencelock", "rueidislock", "redislock", "redsync", "bare"}

// drawBenchmarks draws rows of the section about Redis of the page of benchmarks.
func drawBenchmarks(page []byte) ([]byte, error) {
	_, section, ok := strings.Cut(string(page), "\n## Redis\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !ok || !ended {
		return nil, fmt.Errorf("the page of benchmarks has no section about Redis")
	}
	names, rows := tableOf(section)
	server := regexp.MustCompile(`(?m)^(Redis [\d.]+), (\d{4}-\d\d-\d\d)`).FindStringSubmatch(section)
	if server == nil {
		return nil, fmt.Errorf("the section about Redis has no version")
	}
	c := new(canvas)
	const title = "fencelock and other libraries on one Redis"
	y := c.heading(title, fmt.Sprintf("%s, %s, one machine. Shorter is better. All rows: docs/benchmarks.md", server[1], server[2]))
	var said []string
	for _, b := range benchmarkRows {
		cells, ok := rows[b.row]
		if !ok {
			return nil, fmt.Errorf("the page of benchmarks has no row %q", b.row)
		}
		c.text(16, y+14, "bold small", b.title)
		y += 22
		values, longest := map[string]float64{}, 0.0
		for i, name := range names {
			if v, ok := secondsOf(cells[i]); ok {
				values[name] = v
			}
		}
		for _, name := range contestantsDrawn {
			longest = max(longest, values[name])
		}
		said = append(said, b.title+":")
		for _, name := range contestantsDrawn {
			v, ok := values[name]
			if !ok {
				return nil, fmt.Errorf("row %q has no value of %s", b.row, name)
			}
			class := "grey"
			if name == "fencelock" {
				class = "blue"
			}
			w := max(v/longest*360, 2)
			label := name
			if name == "bare" {
				label = "no library"
			}
			c.text(134, y+15, "small end", label)
			c.rect(142, y+2, w, 17, class)
			c.text(142+w+6, y+15, "small", short(v))
			said = append(said, fmt.Sprintf("%s %s;", name, short(v)))
			y += 22
		}
		y += 12
	}
	return c.svg(y+2, title, strings.Join(said, " ")), nil
}

// tableOf returns the columns of the first table in a text of Markdown, and the cells of its rows.
func tableOf(text string) (names []string, rows map[string][]string) {
	rows = map[string][]string{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if names == nil {
			names = cells[1:]
		} else {
			rows[cells[0]] = cells[1:]
		}
	}
	return names, rows
}

// timeInCell finds the time in a cell, such as "1.37 (137 us)" or "1 = 97.3 us".
var timeInCell = regexp.MustCompile(`(?:= |\()([\d.]+) (us|ms|s)\)?$`)

// secondsOf returns the time in a cell.
func secondsOf(cell string) (float64, bool) {
	m := timeInCell.FindStringSubmatch(cell)
	if m == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(m[1], 64)
	return v * map[string]float64{"us": 1e-6, "ms": 1e-3, "s": 1}[m[2]], err == nil
}

// short formats a time with three digits.
func short(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return fmt.Sprintf("%.3g µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}
