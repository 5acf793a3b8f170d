package board

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The times of the rules, and the interval of scrapes that they are written for, are this much
// shorter in the test.
const (
	shorter = 15
	scrape  = 15 * time.Second / shorter
)

// duration is one in an expression or after "for:".
var duration = regexp.MustCompile(`(\[|for: |offset )(\d+)([mh])\b`)

// shorten divides the times of a text by shorter.
func shorten(text string) string {
	return duration.ReplaceAllStringFunc(text, func(s string) string {
		m := duration.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[2]) // digits
		if m[3] == "h" {
			n *= 60
		}
		return m[1] + strconv.Itoa(n*60/shorter) + "s"
	})
}

// rulesFile writes the rules with shorter times, and returns the file.
func rulesFile(t *testing.T) (file, text string) {
	t.Helper()
	b, err := os.ReadFile("../../contrib/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	text = shorten(string(b))
	if strings.Contains(text, "for: 1m") || !strings.Contains(text, "for: 4s") {
		t.Fatal("the times of the rules are not shortened")
	}
	file = filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, text
}

// panel is one of the board, without rows.
type panel struct {
	Type, Title, Description string
	Targets                  []struct{ Expr, LegendFormat string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
}

// panels reads the board.
func panels(t *testing.T) (rows [][]panel, titles []string) {
	t.Helper()
	text, err := os.ReadFile("../../contrib/grafana/board.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []panel }
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Type == "row" {
			rows, titles = append(rows, nil), append(titles, p.Title)
			continue
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], p)
	}
	return rows, titles
}

// query replaces the variables of the board as Grafana does when all jobs, engines and classes are
// chosen.
func query(expr string) string {
	return strings.NewReplacer(
		"$job", ".*", "$engine", ".*", "$class", ".*",
		"$__rate_interval", (4 * scrape).String(), "$__range", "10m",
	).Replace(expr)
}

// selector is a metric in an expression.
var selector = regexp.MustCompile(`\bfencelock_\w+(\{[^}]*\})?`)

// matcher is a label of a selector with its value or values.
var matcher = regexp.MustCompile(`(\w+)=~"([^"]*)"`)

// selectors returns those of an expression, one for each value that a label may have.
func selectors(expr string) (all []string) {
	for _, s := range selector.FindAllString(expr, -1) {
		variants := []string{s}
		for _, m := range matcher.FindAllStringSubmatch(s, -1) {
			var more []string
			for value := range strings.SplitSeq(m[2], "|") {
				for _, v := range variants {
					more = append(more, strings.ReplaceAll(v, m[0], m[1]+`=~"`+value+`"`))
				}
			}
			variants = more
		}
		all = append(all, variants...)
	}
	return all
}
