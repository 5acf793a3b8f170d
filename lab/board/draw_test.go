//go:build linux

package board

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/lab/picture"
)

// step is the time between two values of the picture.
const step = 2 * time.Second

// draw stores what the panels show on the server with classic histograms.
func (l *live) draw(t *testing.T, docs string) {
	t.Helper()
	now := time.Now()
	b := picture.Board{
		Measured: fmt.Sprintf("TestLive: examples/service on Redis, scraped every %v, in %d s", scrape, int(now.Sub(l.began).Seconds())),
		Step:     step.Seconds(),
		Events:   l.events,
	}
	rows, titles := panels(t)
	for i, row := range rows {
		r := picture.BoardRow{Title: titles[i]}
		for _, panel := range row {
			p := picture.BoardPanel{Title: panel.Title, Kind: panel.Type, Unit: panel.FieldConfig.Defaults.Unit}
			for _, target := range panel.Targets {
				for _, s := range l.servers[0].during(t, query(target.Expr), l.began, now) {
					p.Series = append(p.Series, picture.BoardSeries{Name: l.legend(target.LegendFormat, s.Metric), Values: values(s, l.began, now)})
				}
			}
			r.Panels = append(r.Panels, p)
		}
		b.Rows = append(b.Rows, r)
	}
	if err := picture.Store(docs, "board.json", b); err != nil {
		t.Fatal(err)
	}
}

var label = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend replaces labels by their values. Instances get numbers.
func (l *live) legend(format string, labels map[string]string) string {
	return label.ReplaceAllStringFunc(format, func(s string) string {
		name := label.FindStringSubmatch(s)[1]
		if name != "instance" {
			return labels[name]
		}
		for i, admin := range l.places {
			if admin == labels[name] {
				return strconv.Itoa(i + 1)
			}
		}
		return labels[name]
	})
}

// values returns the values of a series, one for each step, and "-" for none.
func values(s series, began, end time.Time) string {
	all := make([]string, int(end.Sub(began)/step)+1)
	for i := range all {
		all[i] = "-"
	}
	for _, v := range s.Values {
		i := int((v.At - float64(began.UnixMilli())/1000) / step.Seconds())
		if i >= 0 && i < len(all) {
			all[i] = strconv.FormatFloat(rounded(v.V), 'f', -1, 64)
		}
	}
	return strings.Join(all, " ")
}

// rounded keeps three digits.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	return math.Round(v/unit) * unit
}
