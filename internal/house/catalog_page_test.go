package house_test

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/catalog"
)

// What stands in a page between "<!-- engines WORDS -->" and "<!-- end -->" is written from the catalog.
// WORDS are columns of a table with a row for each engine, or "facts NAME" for the list at the top of
// an engine's page, or "say FACT" for a paragraph. After a bar there are the names of the engines that
// the table leaves out, or "stores": one row, that of recordlock, then has them all.

var mark = regexp.MustCompile(`(?s)(<!-- engines ([^|>]+?)(?: \| ([^>]+?))? -->\n).*?(<!-- end -->)`)

// column is what a table can show, by its word in marks.
type column struct {
	head string
	cell func(e catalog.Engine, dir string) string
}

var columns = map[string]column{
	"engine":   {"engine", func(e catalog.Engine, dir string) string { return toPage(e.Name, e, dir) }},
	"package":  {"package", func(e catalog.Engine, dir string) string { return toPage("`"+path.Base(e.Package)+"`", e, dir) }},
	"import":   {"package", func(e catalog.Engine, _ string) string { return "`" + path.Base(e.Package) + "`" }}, // for a page that is copied elsewhere
	"use":      {"use it if", func(e catalog.Engine, _ string) string { return e.Use }},
	"needs":    {"needs", func(e catalog.Engine, _ string) string { return e.Needs }},
	"cannot":   {"it cannot", func(e catalog.Engine, _ string) string { return e.Cannot }},
	"url":      {"URL", func(e catalog.Engine, _ string) string { return first(urls(e)) }},
	"command":  {"command", func(e catalog.Engine, _ string) string { return program(e) }},
	"ttl":      {"shortest TTL", func(e catalog.Engine, _ string) string { return shortest(e) }},
	"order":    {"order of waiters", func(e catalog.Engine, _ string) string { return orders[traits(e).Order] }},
	"wake":     {"how a waiter learns of a release", func(e catalog.Engine, _ string) string { return string(e.Wake) }},
	"death":    {"a dead holder's lock is free", func(e catalog.Engine, _ string) string { return string(e.Death) }},
	"failover": {"failover, or loss of one server", func(e catalog.Engine, _ string) string { return e.Failover }},
	"lost":     {"if the server loses its data", func(e catalog.Engine, _ string) string { return string(e.Lost) }},
	"tokens":   {"after a loss of data, tokens grow by", func(e catalog.Engine, _ string) string { return e.Tokens }},
	"acquire":  {"acquire and release", func(e catalog.Engine, _ string) string { return orDash(e.Acquire) }},
	"handover": {"hand-over", func(e catalog.Engine, _ string) string { return orDash(e.HandOver) }},
	"lacks":    {"does not work there", func(e catalog.Engine, _ string) string { return orDash(strings.Join(lacks(e), ", ")) }},
}

var orders = map[driver.Order]string{
	driver.OrderNone: "none", driver.OrderProcess: "first come, first served, between processes", driver.OrderAll: "first come, first served",
}

// paragraphs are facts about all engines, by their word in marks.
var paragraphs = map[string]func() string{
	"waiting": func() string {
		return "Waiters poll on " + named(func(e catalog.Engine) bool { return e.Wake == catalog.Poll || e.Wake == catalog.Either }) + ". On the other engines they are woken."
	},
	"order": func() string {
		return "Waiters are served first come, first served on all engines but " + named(func(e catalog.Engine) bool { return traits(e).Order == driver.OrderNone }) +
			", which has no order. On " + named(func(e catalog.Engine) bool { return traits(e).Order == driver.OrderProcess }) + " the order is between processes."
	},
	"ttl": func() string {
		where := map[time.Duration]string{} // what follows "on"
		for _, e := range catalog.Engines {
			ttl := minTTL(e)
			same := func(o catalog.Engine) bool { return minTTL(o) == ttl }
			where[ttl] = named(func(o catalog.Engine) bool { return same(o) && !o.Store() })
			if slices.ContainsFunc(catalog.Engines, func(o catalog.Engine) bool { return same(o) && o.Store() }) {
				where[ttl] += ", and so on all stores of records"
			}
		}
		var sentences []string
		for _, ttl := range slices.Sorted(maps.Keys(where)) {
			sentences = append(sentences, fmt.Sprintf("%d ms on %s.", ttl.Milliseconds(), where[ttl]))
		}
		return "The shortest TTL is " + strings.Join(sentences, " It is ") + " The command takes 1 s at least."
	},
	"death": func() string {
		return "The lock of a holder that dies is free at once on " + named(func(e catalog.Engine) bool { return e.Death == catalog.AtOnce }) +
			", and after its TTL on the others. On " + named(func(e catalog.Engine) bool { return e.Death == catalog.TwoTTLs }) +
			", a request that comes after the death waits for two TTLs, and `run -n` is refused."
	},
}

// named joins the names of the engines for which a fact is true.
func named(which func(catalog.Engine) bool) string {
	var all []string
	for _, e := range catalog.Engines {
		if which(e) {
			all = append(all, e.Name)
		}
	}
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}

// writeMarks returns a page with what stands between its marks written again.
func writeMarks(name, text string) (page string, faults []string) {
	page = mark.ReplaceAllStringFunc(text, func(s string) string {
		m := mark.FindStringSubmatch(s)
		words := strings.Fields(m[2])
		out, err := "", error(nil)
		switch words[0] {
		case "facts":
			out, err = facts(strings.TrimPrefix(m[2], "facts "), path.Dir(name))
		case "say":
			say, ok := paragraphs[words[len(words)-1]]
			if !ok {
				err = fmt.Errorf("there is no fact %q", words[len(words)-1])
				break
			}
			out = wrapped(say())
		default:
			out, err = engineTable(words, m[3], path.Dir(name))
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %s: %v", name, strings.TrimSpace(m[1]), err))
			return s
		}
		return m[1] + out + m[4]
	})
	if n := strings.Count(codeBlock.ReplaceAllString(text, ""), "<!-- engines "); n != len(mark.FindAllString(text, -1)) {
		faults = append(faults, fmt.Sprintf("%s: %d marks, not all of which have an end", name, n))
	}
	return page, faults
}

func engineTable(words []string, without, dir string) (string, error) {
	together := without == "stores" || strings.HasSuffix(without, ", stores")
	left := strings.Split(without, ", ")
	for _, name := range left {
		if name != "" && name != "stores" && !slices.ContainsFunc(catalog.Engines, func(e catalog.Engine) bool { return e.Name == name }) {
			return "", fmt.Errorf("there is no engine %q to leave out", name)
		}
	}
	var out strings.Builder
	for _, word := range words {
		c, ok := columns[word]
		if !ok {
			return "", fmt.Errorf("there is no column %q", word)
		}
		out.WriteString("| " + c.head + " ")
	}
	out.WriteString("|\n" + strings.Repeat("|---", len(words)) + "|\n")
	rows := map[string][]string{} // by the other cells: the first ones
	var order []string
	for _, e := range catalog.Engines {
		if slices.Contains(left, e.Name) || together && e.Store() {
			continue
		}
		var cells []string
		for _, word := range words {
			cell := columns[word].cell(e, dir)
			if together && e.Package == "recordlock" && word == "use" {
				stores := storeLinks(dir)
				if words[0] == "import" {
					stores = linkText.ReplaceAllString(stores, "$1")
				}
				cell = "you run " + stores + ", or another store with a conditional write"
			}
			cells = append(cells, cell)
		}
		rest := strings.Join(cells[1:], " | ")
		if rows[rest] == nil {
			order = append(order, rest)
		}
		rows[rest] = append(rows[rest], cells[0])
	}
	for _, rest := range order { // engines about which all is equal share a row
		fmt.Fprintf(&out, "| %s | %s |\n", strings.Join(rows[rest], ", "), rest)
	}
	return out.String(), nil
}

// storeLinks are the names of the stores of records with links.
func storeLinks(dir string) string {
	var all []string
	for _, e := range catalog.Engines {
		if e.Store() {
			all = append(all, toPage(e.Name, e, dir))
		}
	}
	return strings.Join(all, ", ")
}

// facts is the list at the top of an engine's page.
func facts(name, dir string) (string, error) {
	i := slices.IndexFunc(catalog.Engines, func(e catalog.Engine) bool { return e.Name == name })
	if i < 0 {
		return "", fmt.Errorf("there is no engine %q", name)
	}
	e := catalog.Engines[i]
	var out strings.Builder
	rows := [][2]string{{"needs", e.Needs}, {"cannot", e.Cannot}}
	if len(e.Schemes) > 0 {
		rows = append(rows, [2]string{"URL", strings.Join(urls(e), ", ") + ", with " + program(e)})
	}
	words := []string{"death", "failover", "lost", "wake"}
	if !e.Store() { // these are the same in all records
		words = append(words, "tokens", "order", "ttl")
	}
	for _, word := range words {
		rows = append(rows, [2]string{columns[word].head, columns[word].cell(e, dir)})
	}
	if e.Store() {
		rows = append(rows, [2]string{"the rest", "as on all " + toPage("records", catalog.Engine{Page: "engines/records.md"}, dir)})
	}
	for _, row := range append(rows, [2]string{"does not work with", strings.Join(lacks(e), ", ")}) {
		if row[1] != "" && row[1] != "-" {
			item := wrapped(fmt.Sprintf("- **%s**: %s", row[0], row[1]))
			out.WriteString(strings.TrimSuffix(strings.ReplaceAll(item, "\n", "\n  "), "  "))
		}
	}
	return out.String(), nil
}

// lacks are the packages and calls that do not work on an engine.
func lacks(e catalog.Engine) (all []string) {
	for _, a := range []struct {
		what  string
		works bool
	}{
		{"limits (`semaphore`, `run --limit`)", traits(e).Limits},
		{"ticks (`cron`, `run --tick`)", !e.NoClock},
		{"once per key (`idempotent`, `once`)", e.Records},
		{"rates (`ratelimit`, `limit`)", rates(e)},
		{"`Detach` and `Adopt`", e.Adopts},
	} {
		if !a.works {
			all = append(all, a.what)
		}
	}
	return all
}

func toPage(text string, e catalog.Engine, dir string) string {
	rel, err := filepath.Rel(dir, "docs/"+e.Page)
	if err != nil {
		panic(err) // both are relative
	}
	return fmt.Sprintf("[%s](%s)", text, filepath.ToSlash(rel))
}

func urls(e catalog.Engine) (all []string) {
	for _, s := range e.Schemes {
		switch s {
		case "mem":
			all = append(all, "`mem:`")
		case "file":
			all = append(all, "`file:///`")
		default:
			all = append(all, "`"+s+"://`")
		}
	}
	return all
}

func program(e catalog.Engine) string {
	switch {
	case len(e.Schemes) == 0:
		return "-"
	case e.All:
		return "`fencelock-all`"
	}
	return "`fencelock`"
}

func shortest(e catalog.Engine) string { return fmt.Sprintf("%d ms", minTTL(e).Milliseconds()) }

func first(all []string) string {
	if len(all) == 0 {
		return "-"
	}
	return all[0]
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// wrapped is a paragraph with lines of the width of a page.
func wrapped(text string) string {
	out, length := "", 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+1+len(word) > width:
			out, length = out+"\n", 0
		default:
			out, length = out+" ", length+1
		}
		out, length = out+word, length+len(word)
	}
	return out + "\n"
}
