// Package browser opens the pages that fencelock writes in a real Chromium.
package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

var (
	pictures = flag.String("pictures", "", "keep the screenshots in this `folder`")
	settle   = flag.Duration("settle", 0, "how `long` a live page runs before its picture")
)

// The browser and the sample pages are the same for all tests.
var (
	chrome  context.Context
	samples string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	stop, err := start()
	defer stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// start starts the browser, and lets the tests of the package that writes the pages write some.
func start() (stop func(), err error) {
	if samples, err = os.MkdirTemp("", "fencelock-pages"); err != nil {
		return func() {}, err
	}
	stop = func() { os.RemoveAll(samples) }
	program := ""
	for _, name := range []string{"google-chrome", "chromium-browser", "chromium"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		return stop, fmt.Errorf("Chromium is not installed; try: .ci/need browser") //nolint:staticcheck // a name
	}
	write := exec.Command("go", "test", "-C", "../../cmd", "-count=1", "-ldflags=-w", "-vet=off", "-run", "^TestSamples$", "./internal/chaos/page", "-args", "-samples", samples)
	if out, err := write.CombinedOutput(); err != nil {
		return stop, fmt.Errorf("%w: %s", err, out)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.Flag("disable-dev-shm-usage", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	chrome, _ = chromedp.NewContext(allocator)
	return func() { end(); os.RemoveAll(samples) }, chromedp.Do(chrome)
}

// A look is a sample, and how it is looked at.
type look struct {
	sample   string
	width    int64
	dark     bool
	hash     string
	noScript bool
	noisy    bool // the console may have messages, and requests may go elsewhere
}

func (l look) String() string {
	mode := "light"
	if l.dark {
		mode = "dark"
	}
	if l.noScript {
		mode += "-without-script"
	}
	return fmt.Sprintf("%s-%d-%s", l.sample, l.width, mode)
}

type step = chromedp.Action[chromedp.Void]

// A tab shows a sample.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex // guards problems
	problems []string   // requests for anything but the page
}

// open opens a sample. The test fails if the page writes to the console or asks for anything else.
func open(t *testing.T, l look) *tab {
	t.Helper()
	return visit(t, l, "file://"+filepath.Join(samples, l.sample+".html"))
}

// visit opens a page, which may ask only for itself and, if it ends with a slash, for what is below.
func visit(t *testing.T, l look, url string) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(chrome)
	b := &tab{t: t, ctx: ctx, url: url}
	t.Cleanup(func() {
		closeTab()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			if l.noisy {
				break
			}
			t.Error(p)
		}
	})
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	console := chromedp.Console(ctx)
	go func() { // ends when the tab is closed
		for message, err := range console {
			if err != nil {
				return
			}
			b.problem("the console: " + message.String())
		}
	}()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	size := []chromedp.EmulateViewportOption{}
	if l.width < 600 {
		size = append(size, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	b.do(
		command(network.Enable, network.EnableParams{}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.noScript}),
		chromedp.EmulateViewport(l.width, 900, size...),
		chromedp.Navigate(b.url+l.hash), chromedp.WaitReady(chromedp.CSS("main")))
	return b
}

// command is a step that sends a command of the DevTools protocol.
func command[P, R any](c cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (b *tab) listen(event any) {
	if e, ok := event.(*network.EventRequestWillBeSent); ok {
		if address, _, _ := strings.Cut(e.Request.URL, "#"); address != b.url && !(strings.HasSuffix(b.url, "/") && strings.HasPrefix(address, b.url)) && !strings.HasPrefix(address, "data:") {
			b.problem("a request: " + address)
		}
	}
}

func (b *tab) problem(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
}

func (b *tab) do(steps ...step) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// value runs an action that has a value.
func value[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// number returns what an expression of JavaScript is worth.
func (b *tab) number(expression string) float64 {
	b.t.Helper()
	return value(b, chromedp.Evaluate[float64](expression))
}

// until waits until an expression of JavaScript is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[chromedp.Void](expression)); err != nil {
		view := value(b, chromedp.Evaluate[string](`document.querySelector("#view, body").innerText + " at " + location.hash`))
		b.t.Fatalf("%v; waited for %s; the view is %q", err, expression, view)
	}
}

// settled takes steps, and waits until the view rests at another address than before.
func (b *tab) settled(steps ...step) {
	b.t.Helper()
	before := value(b, chromedp.Evaluate[string]("location.hash"))
	b.do(steps...)
	b.until(fmt.Sprintf("location.hash !== %q", before))
}

// wide returns how many seconds the view shows, as its address says; 0 is the whole run.
func (b *tab) wide() float64 {
	b.t.Helper()
	return b.number(`(m => m ? m[2] - m[1] : 0)(/#t=([\d.]+),([\d.]+)/.exec(location.hash))`)
}

// pixels counts the pixels of the timeline that have the colour of a CSS variable.
func (b *tab) pixels(colour string) float64 {
	b.t.Helper()
	return b.number(`(() => {
		const lanes = document.getElementById("lanes"), canvas = document.createElement("canvas"), css = getComputedStyle(document.documentElement).getPropertyValue("` + colour + `").trim();
		const wanted = css.match(/[0-9a-f]{2}/g).map(x => parseInt(x, 16)), cx = canvas.getContext("2d", {willReadFrequently: true});
		canvas.width = lanes.width;
		canvas.height = lanes.height;
		cx.drawImage(lanes, 0, 0);
		const all = cx.getImageData(0, 0, canvas.width, canvas.height).data;
		let n = 0;
		for (let i = 0; i < all.length; i += 4) if (wanted.every((w, k) => Math.abs(all[i + k] - w) < 3)) n++;
		return n;
	})()`)
}

// place returns where an element begins in the window.
func (b *tab) place(id string) (x, y float64) {
	b.t.Helper()
	at := fmt.Sprintf("document.getElementById(%q).getBoundingClientRect()", id)
	return b.number(at + ".x"), b.number(at + ".y")
}

// drag drags the mouse from one place to another.
func drag(fromX, toX, y float64) step { return chromedp.DragAndDropXY(fromX, y, toX, y, 4) }

// fingers is a step of as many fingers as there are numbers, at a height.
func fingers(kind input.DispatchTouchEventType, y float64, xs ...float64) step {
	points := []*input.TouchPoint{}
	for i, x := range xs {
		id := float64(i)
		points = append(points, &input.TouchPoint{X: x, Y: y, ID: &id})
	}
	return command(input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: points})
}
