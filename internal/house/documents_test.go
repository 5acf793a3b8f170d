package house_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fencelock/fencelock/driver/drivertest"
)

// The pages: their links and anchors lead somewhere, their lines are short, long pages have
// a table of contents, and the tests that they name exist.

// documents returns the names of all pages.
func documents(t *testing.T) (all []string) {
	t.Helper()
	return filesBelow(t, ".md")
}

// filesBelow returns the files with these extensions, but for those in hidden folders and
// test data.
func filesBelow(t *testing.T, extensions ...string) (all []string) {
	t.Helper()
	logFolder()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		base := filepath.Base(name)
		if err == nil && d.IsDir() && name != "." && (base == "testdata" || base[0] == '.' && base != ".github") {
			return filepath.SkipDir
		}
		if err == nil && !d.IsDir() && slices.Contains(extensions, filepath.Ext(name)) {
			all = append(all, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// page is a page of Markdown. prose is its text with spaces in the place of code blocks, and
// underscores in the place of code in a line; both keep the lines and the offsets.
type page struct {
	name, text, prose string
	above             int             // lines before it in its file
	anchors           map[string]bool // what links can name in it
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	lineCode  = regexp.MustCompile("``[^`]+``|`[^`]+`")
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	setAnchor = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	links     = regexp.MustCompile(`\]\(([^()\s]+)\)|(?m)^\[[^\]]+\]: (\S+)$`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)|\[([^\]]*)\]\[[^\]]*\]`)
)

func newPage(name, text string) page {
	fill := func(with byte) func(string) string {
		return func(s string) string { return string(blank(s, with)) }
	}
	prose := codeBlock.ReplaceAllStringFunc(text, fill(' '))
	prose = lineCode.ReplaceAllStringFunc(prose, fill('_'))
	return page{name: name, text: text, prose: prose, anchors: anchors(text, prose)}
}

// blank returns text with every character but the ends of lines replaced.
func blank(text string, with byte) []byte {
	b := []byte(text)
	for i := range b {
		if b[i] != '\n' {
			b[i] = with
		}
	}
	return b
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	return newPage(name, readText(t, name))
}

// line returns the number of the line of an offset.
func (p page) line(offset int) int { return p.above + 1 + strings.Count(p.text[:offset], "\n") }

// anchors returns what links can name in a page, as GitHub makes it of headings.
func anchors(text, prose string) map[string]bool {
	found := map[string]bool{}
	for _, m := range setAnchor.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	for _, at := range heading.FindAllStringSubmatchIndex(prose, -1) {
		anchor := slug(text[at[2]:at[3]])
		for n := 1; found[anchor]; n++ {
			anchor = slug(text[at[2]:at[3]]) + "-" + strconv.Itoa(n)
		}
		found[anchor] = true
	}
	return found
}

// slug is the anchor of a heading.
func slug(text string) string {
	text = linkText.ReplaceAllString(text, "$1$2")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// link is where a page links to, and the line in which it does.
type link struct {
	line         int
	file, anchor string
}

// links returns a page's links to files and anchors of this repository. A link to the page
// itself has its name as file.
func (p page) links() (all []link) {
	for _, at := range links.FindAllStringSubmatchIndex(p.prose, -1) {
		from, to := max(at[2], at[4]), max(at[3], at[5])
		target := p.text[from:to]
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(target, "#")
		if file == "" {
			file = p.name
		} else {
			file = path.Join(path.Dir(p.name), file)
		}
		all = append(all, link{p.line(from), file, anchor})
	}
	return all
}

// checkLinks says which links of a page lead nowhere. read returns a page of that name, and
// false if there is no such file.
func checkLinks(p page, read func(string) (page, bool)) (faults []string) {
	for _, l := range p.links() {
		to, ok := read(l.file)
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%s:%d: there is no %s", p.name, l.line, l.file))
		case l.anchor != "" && !to.anchors[l.anchor]:
			faults = append(faults, fmt.Sprintf("%s:%d: %s has no heading #%s", p.name, l.line, l.file, l.anchor))
		}
	}
	return faults
}

// TestLinks checks that links between files, and to headings in them, lead somewhere.
func TestLinks(t *testing.T) {
	for _, name := range documents(t) {
		for _, fault := range checkLinks(readPage(t, name), readLinked) {
			t.Error(fault)
		}
	}
}

// linkedPages are the pages that readLinked has read, by name. Most are linked to often.
var linkedPages = map[string]page{}

// readLinked reads what is linked to. A folder has no text. No two tests call it at once.
func readLinked(name string) (page, bool) {
	if p, ok := linkedPages[name]; ok {
		return p, true
	}
	info, err := os.Stat(name)
	if err != nil {
		return page{}, false
	}
	var text []byte
	if !info.IsDir() {
		if text, err = os.ReadFile(name); err != nil {
			return page{}, false
		}
	}
	p := newPage(name, string(text))
	linkedPages[name] = p
	return p, true
}

// mention is a page, with an anchor, that a Go file or a script names.
var mention = regexp.MustCompile(`\bdocs/[\w/-]+\.md(#[\w-]+)?`)

// TestMentions checks that the pages that code and help texts name exist.
func TestMentions(t *testing.T) {
	for _, name := range filesBelow(t, ".go", ".lua", ".sql", ".txtar", ".yml") {
		if strings.HasPrefix(name, "internal/house/") {
			continue // names made up
		}
		for _, m := range mention.FindAllString(readText(t, name), -1) {
			file, anchor, _ := strings.Cut(m, "#")
			to, ok := readLinked(file)
			if !ok || anchor != "" && !to.anchors[anchor] {
				t.Errorf("%s names %s, which does not exist", name, m)
			}
		}
	}
}

const width = 100

// htmlComment is not shown.
var htmlComment = regexp.MustCompile(` *<!--.*?-->`)

// checkWidth says which lines of prose are too long. Tables, code and lines that are little
// more than one link are not counted.
func checkWidth(p page) (faults []string) {
	n := 0
	prose := strings.Split(p.prose, "\n")
	for text := range strings.SplitSeq(p.text, "\n") {
		n++
		text = htmlComment.ReplaceAllString(text, "")
		long := utf8.RuneCountInString(text)
		longest := 0
		for _, word := range strings.Fields(text) {
			longest = max(longest, utf8.RuneCountInString(word))
		}
		if long <= width || strings.TrimSpace(prose[n-1]) == "" || strings.HasPrefix(strings.TrimSpace(text), "|") || long-longest < 20 {
			continue
		}
		faults = append(faults, fmt.Sprintf("%s:%d: %d characters, want %d at most", p.name, n, long, width))
	}
	return faults
}

// checkContents says whether a long page lacks a table of contents at its beginning.
func checkContents(p page) error {
	const long, top, least = 150, 60, 5 // the facts of an engine stand at the top
	lines := strings.Count(p.text, "\n")
	if lines <= long {
		return nil
	}
	contents := 0
	for _, l := range p.links() {
		if l.line <= top && l.file == p.name && l.anchor != "" {
			contents++
		}
	}
	if contents < min(least, strings.Count(p.prose, "\n## ")) {
		return fmt.Errorf("%s has %d lines and no table of contents in the first %d", p.name, lines, top)
	}
	return nil
}

// longest is how many words a page may have, and longPages are the exceptions, with their own limits.
const longest = 3000

var longPages = map[string]int{
	"lab/bench/results.md": 4000, // all measurements, written by the benchmark
}

// checkLength says whether a page has too many words, as wc -w counts them.
func checkLength(p page) error {
	limit := longest
	if n, ok := longPages[p.name]; ok {
		limit = n
	}
	if n := len(strings.Fields(p.text)); n > limit {
		return fmt.Errorf("%s has %d words, want %d at most: a fact has one page, others link to it", p.name, n, limit)
	}
	return nil
}

// TestPages checks the form of all pages.
func TestPages(t *testing.T) {
	for _, name := range documents(t) {
		p := readPage(t, name)
		for _, fault := range checkWidth(p) {
			t.Error(fault)
		}
		if err := checkContents(p); err != nil {
			t.Error(err)
		}
		if err := checkLength(p); err != nil {
			t.Error(err)
		}
	}
	for name := range longPages {
		if n := len(strings.Fields(readText(t, name))); n <= longest {
			t.Errorf("%s has %d words and needs no limit of its own", name, n)
		}
	}
}

// TestPageChecks proves that the checks of pages find what they should.
func TestPageChecks(t *testing.T) {
	long := strings.Repeat("word ", 21) + "word"
	read := func(name string) (page, bool) {
		return newPage(name, "# Some `code`, and more\n\n## Twice\n\n## Twice\n\n```\n# comment\n```\n<a id=\"set\"></a>\n"), name == "docs/other.md"
	}
	for _, c := range []struct {
		what, text string
		faults     int
	}{
		{"good links", "[a](other.md) [b](other.md#some-code-and-more) [c][r]\n[d](https://example.com/x)\n\n[r]: other.md#twice-1\n", 0},
		{"anchors that are set", "[a](other.md#set)\n", 0},
		{"no such file", "[a](none.md)\n", 1},
		{"no such heading", "[a](other.md#twice-2)\n", 1},
		{"a comment is no heading", "[a](other.md#comment)\n", 1},
		{"a reference to nothing", "[a][r]\n\n[r]: none.md\n", 1},
		{"an anchor of the page itself", "[a](#none)\n", 1},
		{"links in code", "`[a](none.md)`\n\n```\n[a](none.md)\n```\n", 0},
		{"a long line", long + "\n", 1},
		{"a long list entry", "- " + long + "\n", 1},
		{"a long table and code", "| " + long + " |\n\n```\n" + long + "\n```\n", 0},
		{"a long comment", "word <!-- " + long + " -->\n", 0},
		{"a long link", "- [a](https://example.com/" + strings.Repeat("x", 100) + ")\n", 0},
		{"a long page without contents", "# A\n\n## B\n" + strings.Repeat("\n", 150), 1},
		{"a long page with contents", "# A\n\n[B](#b)\n\n## B\n" + strings.Repeat("\n", 150), 0},
		{"too many words", strings.Repeat("word ", 15) + "\n" + strings.Repeat(strings.Repeat("word ", 15)+"\n", longest/15), 1},
		{"contents at the end", "# A\n\n## B\n" + strings.Repeat("\n", 150) + "\n[B](#b)\n", 1},
	} {
		p := newPage("docs/page.md", c.text)
		faults := append(checkLinks(p, func(name string) (page, bool) {
			if name == p.name {
				return p, true
			}
			return read(name)
		}), checkWidth(p)...)
		if err := checkContents(p); err != nil {
			faults = append(faults, err.Error())
		}
		if err := checkLength(p); err != nil {
			faults = append(faults, err.Error())
		}
		if len(faults) != c.faults {
			t.Errorf("%s: %q, want %d", c.what, faults, c.faults)
		}
	}
}

// TestNamedTestsExist checks that the tests, and the cases of the conformance suite, that the
// pages name are there.
func TestNamedTestsExist(t *testing.T) {
	known := map[string]bool{}
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.test {
				known[f.Name.Name] = true
			}
		}
	}
	for _, c := range drivertest.Cases() {
		known["suite/"+c.Name] = true
	}
	named := regexp.MustCompile("`(Test[A-Z]\\w*|suite/[a-z-]+)[`/]")
	for _, document := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(readText(t, document), -1) {
			if !known[m[1]] {
				t.Errorf("%s names %s, which does not exist", document, m[1])
			}
		}
	}
}

// TestUnits: a unit of systemd on a page is a file of packaging, byte for byte, and the page of
// packaging names every file.
func TestUnits(t *testing.T) {
	units := map[string]bool{}
	list := readText(t, "contrib/packaging/README.md")
	for _, name := range filesBelow(t, ".service", ".timer") {
		units[readText(t, name)] = true
		if !strings.Contains(list, path.Base(name)) {
			t.Errorf("contrib/packaging/README.md does not name %s", name)
		}
	}
	for _, name := range documents(t) {
		for _, block := range strings.Split(readText(t, name), "```ini\n")[1:] {
			if block, _, _ = strings.Cut(block, "```\n"); !units[block] {
				t.Errorf("%s shows a unit that is not in contrib/packaging:\n%s", name, block)
			}
		}
	}
}
