package browser

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// A site is a server of the dashboard, in a process of its own.
type site struct{ url string }

// dashboardTests builds the tests of package dashboard, which serve its page.
func dashboardTests(t *testing.T) string {
	t.Helper()
	program := filepath.Join(samples, "dashboard.test")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", samples, "./cmd/fencelock").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("go", "test", "-C", "../..", "-c", "-o", program, "./dashboard").CombinedOutput(); err != nil {
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
	program := dashboardTests(t)
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
					b.do(chromedp.Sleep(*settle))
					b.keep(filepath.Join(folder, fmt.Sprint(l)+".png"))
				})
			}
		}
	}
}
