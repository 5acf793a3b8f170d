package browser

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// build builds the tests of package dashboard, which serve its page, or the command.
func build(t *testing.T, what string) string {
	t.Helper()
	program := filepath.Join(samples, what)
	args := map[string][]string{
		"dashboard.test": {"test", "-C", "../..", "-c", "-ldflags=-w", "-vet=off", "-o", program, "./observe/dashboard"},
		"fencelock":      {"build", "-C", "../../cmd", "-buildvcs=false", "-ldflags=-w", "-o", program, "./fencelock"},
	}[what]
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// serve starts a program that prints its address, and returns the address. The program ends with
// the test.
func serve(t *testing.T, program string, args ...string) string {
	t.Helper()
	c := exec.Command(program, args...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, url, found := strings.Cut(lines.Text(), "http://"); found {
			return "http://" + url
		}
	}
	t.Fatalf("%s printed no address: %v", program, lines.Err())
	return ""
}

// TestDashboardPictures opens the page of several engines, wide and narrow, light and dark.
func TestDashboardPictures(t *testing.T) {
	program := build(t, "dashboard.test")
	folder := *pictures
	if folder == "" {
		folder = t.TempDir()
	}
	for _, sample := range []string{"empty", "three", "shop", "crowd", "many"} {
		url := serve(t, program, "-test.run=^TestServe$", "-serve", sample)
		if sample == "shop" {
			time.Sleep(*settle)
		}
		for _, width := range []int64{1400, 390} {
			for _, dark := range []bool{false, true} {
				l := look{sample: "dashboard-" + sample, width: width, dark: dark}
				t.Run(l.String(), func(t *testing.T) {
					b := visit(t, l, url)
					b.until(`document.getElementById("state").textContent === "live"`)
					if got := b.number("document.documentElement.scrollWidth"); got > float64(width) {
						t.Errorf("the page is %v pixels wide", got)
					}
					if sample == "shop" {
						b.do(chromedp.Click(chromedp.CSS("#foot button")))
						b.until(`document.querySelectorAll("#jobs tbody tr").length === 3 && document.querySelectorAll("#elections tbody tr").length === 2`)
						b.do(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
					}
					b.do(chromedp.Sleep(*settle))
					b.keep(filepath.Join(folder, fmt.Sprint(l)+".png"))
				})
			}
		}
	}
}

// A lock that another process acquires is shown within a second, and gone when it is released.
func TestDashboardIsLive(t *testing.T) {
	program, locks := build(t, "fencelock"), "file://"+t.TempDir()
	url := serve(t, program, "ui", "--url", locks, "--listen", "127.0.0.1:0")
	b := visit(t, look{width: 1400}, url)
	b.until(`document.getElementById("foot").textContent.startsWith("No lock is held")`)
	for round := range 3 {
		holder := exec.Command(program, "run", "--url", locks, "--note", "from afar", "stock", "--", "sh", "-c", "echo held; cat")
		out, err := holder.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := holder.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		held := time.Now()
		b.until(`document.querySelector("#locks tbody tr")?.textContent.includes("from afar")`)
		took := time.Since(held)
		t.Logf("shown after %v", took)
		if took > 5*time.Second { // a second, and what a busy machine needs
			t.Errorf("round %d: the lock was shown after %v", round, took)
		}
		in.Close()
		if err := holder.Wait(); err != nil {
			t.Fatal(err)
		}
		b.until(`document.querySelector("#locks tbody tr")?.textContent.includes("free")`)
	}
	// Chromium draws what begins far outside of a strip wrongly.
	if far := b.number(`Math.max(...[...document.querySelectorAll(".past rect")].map(r => Math.abs(r.getAttribute("x"))))`); far > 3_600_000 {
		t.Errorf("a strip of five minutes has something %v ms away", far)
	}
}

// A lock is taken away with its name typed, a reason and the token of the URL.
func TestDashboardBreaks(t *testing.T) {
	program, locks := build(t, "fencelock"), "file://"+t.TempDir()
	url := serve(t, program, "ui", "--url", locks, "--listen", "127.0.0.1:0", "--allow-break")
	holder := exec.Command(program, "run", "--url", locks, "stock", "--", "sleep", "600")
	var said strings.Builder
	holder.Stderr = &said
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	page, fragment, _ := strings.Cut(url, "#")
	b := visit(t, look{width: 1400, hash: "#" + fragment}, page)
	b.until(`document.querySelector("#locks tbody button")?.disabled === false`)
	if shown := value(b, chromedp.Evaluate[string]("location.href")); shown != page {
		t.Errorf("the address bar shows %s", shown)
	}
	b.do(chromedp.Click(chromedp.CSS("#locks tbody button")), chromedp.SendKeys(chromedp.CSS("[name=typed]"), "stoc"), chromedp.SendKeys(chromedp.CSS("[name=reason]"), "it hangs"))
	if b.number(`document.querySelector("dialog .danger").disabled ? 1 : 0`) != 1 {
		t.Error("the name is typed wrong, and the button works")
	}
	b.do(chromedp.SendKeys(chromedp.CSS("[name=typed]"), "k"))
	if *pictures != "" {
		b.keep(filepath.Join(*pictures, "dashboard-dialog.png"))
	}
	b.do(chromedp.Click(chromedp.CSS("dialog .danger")))
	b.until(`/New token: \d+/.test(document.querySelector("dialog").textContent)`)
	if err := holder.Wait(); err == nil || !strings.Contains(said.String(), "it hangs") {
		t.Errorf("the holder ended with %v and said %q", err, said.String())
	}
}

// Without the token, the dialog asks for it.
func TestDashboardAsksForTheToken(t *testing.T) {
	b := visit(t, look{width: 390, dark: true, noisy: true}, serve(t, build(t, "dashboard.test"), "-test.run=^TestServe$", "-serve", "three"))
	b.until(`document.querySelectorAll("#locks tbody button").length === 3`)
	b.do(chromedp.Click(chromedp.CSS("#locks tbody button")), chromedp.SendKeys(chromedp.CSS("[name=typed]"), "tenant:0"), chromedp.SendKeys(chromedp.CSS("[name=reason]"), "it hangs"), chromedp.Click(chromedp.CSS("dialog .danger")))
	b.until(`document.querySelector(".said").textContent.includes("missing or wrong") && document.querySelector("[name=token]").checkVisibility()`)
	if *pictures != "" {
		b.keep(filepath.Join(*pictures, "dashboard-token.png"))
	}
	b.do(chromedp.SendKeys(chromedp.CSS("[name=token]"), "sesame"), chromedp.Click(chromedp.CSS("dialog .danger")))
	b.until(`/New token: \d+/.test(document.querySelector("dialog").textContent)`)
	b.until(`document.getElementById("held").textContent === "locks held2"`)
}

// A page of another origin can neither read the dashboard nor act on it, even if its name points to
// the server.
func TestDashboardRefusesStrangers(t *testing.T) {
	program := build(t, "dashboard.test")
	url, other := serve(t, program, "-test.run=^TestServe$", "-serve", "three"), serve(t, program, "-test.run=^TestServe$", "-serve", "empty")
	b := visit(t, look{width: 1400, noisy: true}, strings.Replace(other, "127.0.0.1", "localhost", 1))
	b.until(`document.getElementById("state").textContent === "live"`)
	// The policy of the page itself forbids other servers, so a page without one asks.
	b.do(chromedp.Navigate("data:text/html,<title>stranger</title><main></main>"))
	for _, request := range []string{
		`{method: "POST", headers: {"Content-Type": "application/json", Authorization: "Bearer sesame"}, body: "{}"}`,
		`{method: "POST", mode: "no-cors", body: "{}"}`,
	} {
		got := value(b, chromedp.Evaluate[string](fmt.Sprintf(`fetch(%q, %s).then(r => "answered " + r.status, e => "refused")`, url+"break", request), chromedp.EvalAwaitPromise))
		if got != "refused" && got != "answered 0" { // an answer that the page cannot read
			t.Errorf("%s: %s", request, got)
		}
	}
	rebound := strings.Replace(url, "127.0.0.1", "rebound.localhost", 1) // resolves to this host in Chromium
	b.do(chromedp.Navigate(rebound), chromedp.WaitReady(chromedp.CSS("body")))
	if text := value(b, chromedp.Evaluate[string]("document.body.textContent")); !strings.Contains(text, "not served under the host name") {
		t.Errorf("a foreign name gets %q", text)
	}
	left := visit(t, look{width: 1400}, url)
	left.until(`document.querySelectorAll("#locks tbody tr").length === 3`)
}

// Names are text, with and without JavaScript. The sub-path of the test server changes nothing.
func TestDashboardShowsHostileNames(t *testing.T) {
	url := serve(t, build(t, "dashboard.test"), "-test.run=^TestServe$", "-serve", "shop")
	for _, noScript := range []bool{false, true} {
		b := visit(t, look{width: 1400, noScript: noScript}, url)
		b.until(`[...document.querySelectorAll("#locks tbody th")].some(e => e.textContent.startsWith("<img src=x onerror=alert(1)>\"'&\\u202egnp"))`)
		if n := b.number(`document.querySelectorAll("main img, main b.evil, main script").length`); n != 0 {
			t.Errorf("%v elements that names have made", n)
		}
		if noScript && *pictures != "" {
			b.keep(filepath.Join(*pictures, "dashboard-without-script.png"))
		}
	}
}

// The key / goes to the filter, which the server applies.
func TestDashboardFilter(t *testing.T) {
	b := visit(t, look{width: 1400}, serve(t, build(t, "dashboard.test"), "-test.run=^TestServe$", "-serve", "crowd"))
	b.until(`document.querySelectorAll("#locks tbody tr").length === 200`)
	slash := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/"} // one event, as of a keyboard
	b.do(command(input.DispatchKeyEvent, slash), chromedp.KeyEvent("2"), chromedp.KeyEvent("9"), chromedp.KeyEvent("9"))
	b.until(`document.querySelectorAll("#locks tbody tr").length === 1 && location.search === "?filter=299"`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`document.querySelectorAll("#locks tbody tr").length === 200 && location.search === ""`)
}

// A hidden window has no connection, and draws nothing. It catches up when it is shown.
func TestDashboardRestsWhileHidden(t *testing.T) {
	b := visit(t, look{width: 1400}, serve(t, build(t, "dashboard.test"), "-test.run=^TestServe$", "-serve", "three"))
	b.until(`document.querySelector("#locks tbody td.n div")?.textContent`)
	turn := func(hidden bool) {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`Object.defineProperty(document, "hidden", {configurable: true, value: %v}); document.dispatchEvent(new Event("visibilitychange")); undefined`, hidden)))
	}
	const age = `parseFloat(document.querySelector("#locks tbody td.n div").textContent)`
	turn(true)
	b.until(`document.getElementById("state").textContent === "paused"`)
	before := b.number(age)
	b.do(chromedp.Sleep(3 * time.Second))
	if after := b.number(age); after != before {
		t.Errorf("a hidden window went from %v to %v", before, after)
	}
	turn(false)
	b.until(fmt.Sprintf(`document.getElementById("state").textContent === "live" && %s > %v`, age, before))
}
