package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestPictures opens each sample as a wide and a narrow page, light and dark.
func TestPictures(t *testing.T) {
	folder := *pictures
	if folder == "" {
		folder = t.TempDir()
	}
	for _, sample := range []string{"violated", "clean", "dense", "hostile", "crowd", "down", "empty"} {
		for _, width := range []int64{1400, 390} {
			for _, dark := range []bool{false, true} {
				l := look{sample: sample, width: width, dark: dark}
				t.Run(l.String(), func(t *testing.T) { picture(t, l, folder) })
			}
		}
	}
	zoomed := look{sample: "violated", width: 1400, hash: "#t=34.3,35.3"}
	t.Run("zoomed", func(t *testing.T) { open(t, zoomed).keep(filepath.Join(folder, "zoomed.png")) })
}

func picture(t *testing.T, l look, folder string) {
	b := open(t, l)
	if got := b.number("document.documentElement.scrollWidth"); got > float64(l.width) {
		t.Errorf("the page is %v pixels wide", got)
	}
	if l.sample != "empty" {
		b.until(`document.getElementById("view").textContent !== ""`)
		if n := b.pixels("--c0"); n < 50 {
			t.Errorf("the timeline has %v pixels of the first lock", n)
		}
		if n := b.pixels("--bad"); (n > 20) != slices.Contains([]string{"violated", "hostile", "crowd"}, l.sample) {
			t.Errorf("the timeline has %v pixels of a violation", n)
		}
	}
	b.keep(filepath.Join(folder, l.String()+".png"))
}

// keep writes a screenshot of the whole page, which must not be of one colour.
func (b *tab) keep(file string) {
	b.t.Helper()
	image := value(b, chromedp.FullScreenshot(100))
	if len(image) < 5000 {
		b.t.Errorf("the picture of the page has only %d bytes", len(image))
	}
	if err := os.WriteFile(file, image, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestLink opens the address of a moment, and follows the link of the verdict.
func TestLink(t *testing.T) {
	b := open(t, look{sample: "violated", width: 1400, hash: "#t=1,2"})
	b.until(`document.getElementById("view").textContent.startsWith("1 s from 1.000 s")`)
	if n := b.pixels("--bad"); n != 0 {
		t.Errorf("a view without a violation has %v pixels of one", n)
	}
	b.settled(chromedp.Click(chromedp.CSS("a.go")))
	b.shows("V1")
	if wide := b.wide(); wide <= 0 || wide > 5 {
		t.Errorf("the view is %v s wide", wide)
	}
	open(t, look{sample: "violated", width: 390, hash: "#t=34.3,35.3"}).shows("V1")
}

// shows waits for a violation in the view, and looks for its pixels.
func (b *tab) shows(id string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.querySelector("#view b")?.textContent.includes(%q)`, id))
	if n := b.pixels("--bad"); n < 500 {
		b.t.Errorf("the timeline has %v pixels of %s", n, id)
	}
}

// TestKeys uses the keyboard alone.
func TestKeys(t *testing.T) {
	b := open(t, look{sample: "violated", width: 1400})
	b.do(chromedp.Focus(chromedp.CSS("#lanes")))
	for range 3 { // two losses come first
		b.settled(chromedp.KeyEvent("n"))
	}
	b.shows("V1")
	wide := b.wide()
	b.settled(chromedp.KeyEvent("+"))
	if got := b.wide(); got > wide*.6 {
		t.Errorf("+ makes a view of %v s into one of %v s", wide, got)
	}
	b.settled(chromedp.KeyEvent(kb.ArrowRight))
	b.settled(chromedp.KeyEvent("0"))
	if got := b.wide(); got != 0 {
		t.Errorf("0 shows %v s", got)
	}
	b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent("."))
	b.until(`/^w2 held .* token \d+/.test(document.getElementById("view").textContent)`)
}

// TestFind goes to a token and to a time.
func TestFind(t *testing.T) {
	b := open(t, look{sample: "dense", width: 1400})
	b.settled(chromedp.SendKeys(chromedp.CSS("#find"), "+4\r"))
	b.until(`/token \d{16,}/.test(document.getElementById("view").textContent)`)
	b.settled(chromedp.SendKeys(chromedp.CSS("#find"), "\b\b12.5 s\r"))
}

// TestMouse uses the wheel and drags.
func TestMouse(t *testing.T) {
	b := open(t, look{sample: "violated", width: 1400})
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#lanes")))
	x, y := b.place("lanes")
	b.settled(command(input.DispatchMouseEvent, input.DispatchMouseEventParams{
		Type: chromedp.MouseWheel, X: x + 700, Y: y + 200, DeltaX: 1, DeltaY: -100, Modifiers: int64(chromedp.ModifierCtrl)}))
	wheel := b.wide()
	if wheel <= 0 || wheel >= 60 {
		t.Errorf("after the wheel the view is %v s wide", wheel)
	}
	b.settled(drag(x+700, x+500, y+200))
	if got := b.wide(); got < wheel*.99 || got > wheel*1.01 {
		t.Errorf("a drag changes the width from %v to %v s", wheel, got)
	}
	b.settled(drag(x+600, x+700, y+10))
	if got := b.wide(); got > wheel/4 {
		t.Errorf("a drag over the times leaves a width of %v s", got)
	}
	b.settled(chromedp.Click(chromedp.CSS(`button[data-key="0"]`)))
	_, strip := b.place("strip")
	b.settled(drag(x+400, x+500, strip+80))
	if got := b.wide(); got <= 0 || got > 10 {
		t.Errorf("a drag over the strip leaves a width of %v s", got)
	}
}

// TestTouch pinches with two fingers.
func TestTouch(t *testing.T) {
	b := open(t, look{sample: "violated", width: 390})
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#lanes")))
	_, y := b.place("lanes")
	y += 150
	b.settled(fingers(input.DispatchTouchEventTypeTouchStart, y, 200), fingers(input.DispatchTouchEventTypeTouchStart, y, 200, 220),
		fingers(input.DispatchTouchEventTypeTouchMove, y, 150, 270), fingers(input.DispatchTouchEventTypeTouchMove, y, 120, 300),
		fingers(input.DispatchTouchEventTypeTouchEnd, y))
	if got := b.wide(); got <= 0 || got > 20 {
		t.Errorf("after a pinch the view is %v s wide", got)
	}
}

// TestWithoutScript: without JavaScript only the timeline is missing.
func TestWithoutScript(t *testing.T) {
	for _, width := range []int64{1400, 390} {
		l := look{sample: "violated", width: width, noScript: true}
		b := open(t, l)
		b.do(chromedp.WaitNotVisible(chromedp.CSS("#lanes")), chromedp.WaitVisible(chromedp.CSS(".timeline .no-js")),
			chromedp.WaitVisible(chromedp.CSS(".answers")), chromedp.WaitVisible(chromedp.CSS(".violations table")))
		if *pictures != "" {
			b.keep(filepath.Join(*pictures, l.String()+".png"))
		}
	}
}

// TestNames: a screen reader has a name for everything that can be used, and for each table.
func TestNames(t *testing.T) {
	b := open(t, look{sample: "violated", width: 1400})
	tree := value(b, chromedp.Action[accessibility.GetFullAXTreeResult](func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	}))
	seen := map[string]int{}
	named := []string{"button", "link", "checkbox", "searchbox", "application", "table", "image"}
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role := strings.Trim(string(n.Role.Value), `"`)
		seen[role]++
		for _, want := range named {
			if role == want && (n.Name == nil || len(n.Name.Value) <= len(`""`)) {
				t.Errorf("a %s has no name", role)
			}
		}
	}
	for _, role := range append(named, "status", "heading") {
		if seen[role] == 0 {
			t.Errorf("the page has no %s", role)
		}
	}
}

// TestDense pans through half of 100,000 acquisitions.
func TestDense(t *testing.T) {
	b := open(t, look{sample: "dense", width: 1400})
	b.do(chromedp.Focus(chromedp.CSS("#lanes")))
	b.settled(chromedp.KeyEvent("+"))
	frame := value(b, chromedp.Evaluate[float64](`new Promise(done => {
		const canvas = document.getElementById("lanes"), start = performance.now();
		let n = 0;
		const next = () => {
			if (++n > 40) return done((performance.now() - start) / 40);
			canvas.dispatchEvent(new KeyboardEvent("keydown", {key: n % 2 ? "ArrowRight" : "ArrowLeft"}));
			requestAnimationFrame(next);
		};
		next();
	})`, chromedp.EvalAwaitPromise))
	t.Logf("%.0f ms for a frame", frame)
	if frame > 1000 {
		t.Errorf("a frame takes %.0f ms", frame)
	}
}
