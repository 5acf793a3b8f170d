//go:build linux

package picture_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/lab/picture"
)

const docs = "../../docs"

// TestPicturesShowTheirData: each picture in the documentation is what its data draw.
func TestPicturesShowTheirData(t *testing.T) {
	t.Parallel()
	drawn, err := picture.Draw(docs)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := filepath.Glob(filepath.Join(docs, "pictures", "*.svg"))
	if err != nil || len(stored) != len(drawn) {
		t.Errorf("%d pictures are stored, and %d drawn; %v", len(stored), len(drawn), err)
	}
	for file, want := range drawn {
		got, err := os.ReadFile(filepath.Join(docs, "pictures", file))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not drawn from its data; run make pictures (%v)", file, err)
		}
	}
}

// TestPicturesCanBeReadByAll: each picture is XML, has a text alternative, has the colours of both
// schemes, loads nothing, and has no text outside.
func TestPicturesCanBeReadByAll(t *testing.T) {
	t.Parallel()
	drawn, err := picture.Draw(docs)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range drawn {
		for _, fault := range faultsOf(string(text)) {
			t.Errorf("%s: %s", file, fault)
		}
	}
}

// faultsOf returns what is wrong with a picture.
func faultsOf(svg string) (all []string) {
	for what, pattern := range map[string]string{
		"no title":                `<svg [^>]*role="img" aria-labelledby="title description">\n<title id="title">[^<]{8,}</title>`,
		"no description":          `<desc id="description">[^<]{40,}</desc>`,
		"no colours of a scheme":  `(?s)\.back \{ fill: #ffffff.*@media \(prefers-color-scheme: dark\) \{.*\.back \{ fill: #0d1117`,
		"no background of a card": `<rect [^>]*class="back"/>`,
	} {
		if !regexp.MustCompile(pattern).MatchString(svg) {
			all = append(all, what)
		}
	}
	if strings.Contains(svg, "href") || strings.Contains(svg, "url(http") {
		all = append(all, "it loads something")
	}
	if strings.Contains(svg, "var(") {
		all = append(all, "librsvg draws variables of CSS black")
	}
	if strings.Contains(svg, "paint-order") {
		all = append(all, "CairoSVG hides text behind its outline")
	}
	if regexp.MustCompile(`(x|y|width|height)="-`).MatchString(svg) {
		all = append(all, "something is outside")
	}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			return append(all, err.Error())
		}
	}
}

// TestFaultsOfPictures: faultsOf finds each fault.
func TestFaultsOfPictures(t *testing.T) {
	t.Parallel()
	drawn, err := picture.Draw(docs)
	if err != nil {
		t.Fatal(err)
	}
	good := string(drawn["frozen.svg"])
	for _, change := range [][2]string{
		{"<title", "<text"}, {"<desc", "<text"}, {"prefers-color-scheme: dark", "print"}, {`class="back"`, `class="faint"`},
		{"</svg>", `<image href="a.png"/></svg>`}, {"</svg>", ""}, {"#0969da", "var(--blue)"}, {`x="16"`, `x="-16"`},
	} {
		if bad := strings.Replace(good, change[0], change[1], 1); bad == good || len(faultsOf(bad)) == 0 {
			t.Errorf("nothing is found after %q became %q", change[0], change[1])
		}
	}
}
