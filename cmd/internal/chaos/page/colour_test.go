package page_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A colour is linear red, green and blue.
type colour [3]float64

// eyes are the simulations of Machado, Oliveira and Fernandes (2009), at full severity.
var eyes = map[string][3]colour{
	"full vision":   {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":    {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia":  {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":    {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
	"achromatopsia": {{.2126, .7152, .0722}, {.2126, .7152, .0722}, {.2126, .7152, .0722}},
}

func parse(hex string) (c colour) {
	if len(hex) == 4 {
		hex = "#" + strings.Repeat(hex[1:2], 2) + strings.Repeat(hex[2:3], 2) + strings.Repeat(hex[3:4], 2)
	}
	for i := range c {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			panic(err)
		}
		if c[i] = float64(n) / 255; c[i] <= .04045 {
			c[i] /= 12.92
		} else {
			c[i] = math.Pow((c[i]+.055)/1.055, 2.4)
		}
	}
	return c
}

func (c colour) seen(by [3]colour) (s colour) {
	for i, row := range by {
		s[i] = min(1, max(0, row[0]*c[0]+row[1]*c[1]+row[2]*c[2]))
	}
	return s
}

func (c colour) luminance() float64 { return .2126*c[0] + .7152*c[1] + .0722*c[2] }

func contrast(a, b colour) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + .05) / (min(x, y) + .05)
}

// lab returns the colour in CIELAB, in which distances are about as large as they look.
func (c colour) lab() [3]float64 {
	f := func(x float64) float64 {
		if x > 216.0/24389 {
			return math.Cbrt(x)
		}
		return (24389.0/27*x + 16) / 116
	}
	x := f((.4124564*c[0] + .3575761*c[1] + .1804375*c[2]) / .95047)
	y := f(c.luminance())
	z := f((.0193339*c[0] + .1191920*c[1] + .9503041*c[2]) / 1.08883)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

func distance(a, b colour) float64 {
	p, q := a.lab(), b.lab()
	return math.Sqrt((p[0]-q[0])*(p[0]-q[0]) + (p[1]-q[1])*(p[1]-q[1]) + (p[2]-q[2])*(p[2]-q[2]))
}

// themes returns the colours of page.css by their names, light and dark.
func themes(t *testing.T) map[string]map[string]colour {
	t.Helper()
	css, err := os.ReadFile("page.css")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`:root \{[^}]*\}`).FindAllString(string(css), -1)
	if len(blocks) != 2 {
		t.Fatalf("page.css has %d blocks of colours, not 2", len(blocks))
	}
	all := map[string]map[string]colour{}
	for i, name := range []string{"light", "dark"} {
		all[name] = map[string]colour{}
		for _, m := range regexp.MustCompile(`--([a-z0-9]+): (#[0-9a-f]+)`).FindAllStringSubmatch(blocks[i], -1) {
			all[name][m[1]] = parse(m[2])
		}
	}
	return all
}

// TestColours: eyes that do not see all colours tell the first four locks, a loss and a violation
// apart; a violation has a shape and a word as well.
func TestColours(t *testing.T) {
	names := []string{"c0", "c1", "c2", "c3", "lost", "bad"}
	for theme, colours := range themes(t) {
		for eye, matrix := range eyes {
			if eye == "achromatopsia" {
				continue // only shapes, words and positions are left
			}
			for i, a := range names {
				for _, b := range names[:i] {
					if d := distance(colours[a].seen(matrix), colours[b].seen(matrix)); d < 12 {
						t.Errorf("%s, %s: %s and %s are %.0f apart", theme, eye, b, a, d)
					}
				}
			}
		}
	}
}

// TestContrast follows WCAG 2: 4.5 for text, 3 for what is drawn.
func TestContrast(t *testing.T) {
	for theme, colours := range themes(t) {
		for _, c := range []struct {
			of, on string
			least  float64
		}{
			{"ink", "paper", 7}, {"soft", "paper", 4.5}, {"faint", "paper", 4.5}, {"faint", "panel", 4.5}, {"bad", "paper", 4.5}, {"lost", "paper", 4.5}, {"good", "paper", 4.5},
			{"on", "c0", 4.5}, {"on", "c1", 4.5}, {"c0", "panel", 3}, {"c1", "panel", 3}, {"c2", "panel", 3}, {"c3", "panel", 2.8}, {"c4", "panel", 3}, {"bad", "panel", 3}, {"gap", "panel", 3},
			{"on", "bad", 4.5}, {"soft", "fault", 4.5},
		} {
			if got := contrast(colours[c.of], colours[c.on]); got < c.least {
				t.Errorf("%s: the contrast of %s on %s is %s, not %v", theme, c.of, c.on, fmt.Sprintf("%.2f", got), c.least)
			}
		}
	}
}
