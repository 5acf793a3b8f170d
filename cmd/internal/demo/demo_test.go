//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/reexec"
)

func TestMain(m *testing.M) {
	reexec.Main(Job())
	os.Exit(m.Run())
}

// TestStory: the demo prints its steps in this order.
func TestStory(t *testing.T) {
	t.Parallel()
	var printed strings.Builder
	if err := Run(t.Context(), false, func(l Line) error {
		fmt.Fprintln(&printed, l.Who, l.Text)
		return nil
	}); err != nil {
		t.Fatalf("%v; it printed\n%s", err, &printed)
	}
	rest := printed.String()
	for _, want := range []string{
		"worker A acquires the lock: token 1",
		"worker B asks for the lock and waits",
		"demo freezes worker A",
		"worker B acquires the lock: token 2",
		"worker B writes guarded.txt and plain.txt: both accept token 2",
		"demo continues worker A",
		`guarded.txt refuses it: fence: stale token: "guarded.txt" refused token 1: the lowest valid token is 2`,
		"plain.txt accepts it",
		`worker A reports: lock "report" with token 1 was lost`,
		`guarded.txt contains "from worker B with token 2"`,
		`plain.txt contains "from worker A with token 1"`,
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("it does not print %q there, but\n%s", want, &printed)
		}
		rest = after
	}
}

// TestEndOfAnInterruptedStory: when Run returns early, the workers have ended, although one is
// frozen, and the files are removed. So it is if the reader of its lines is gone.
func TestEndOfAnInterruptedStory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	gone := errors.New("the reader is gone")
	for _, ending := range []struct {
		how  func() error
		want error
	}{
		{func() error { return gone }, gone},
		{func() error { cancel(); return nil }, nil},
	} {
		var first string
		err := Run(ctx, false, func(l Line) error {
			if first == "" {
				first = l.Text
			}
			if strings.Contains(l.Text, "freezes") {
				return ending.how()
			}
			return nil
		})
		if err == nil || ending.want != nil && !errors.Is(err, ending.want) {
			t.Errorf("the interrupted story returns %v", err)
		}
		pids := regexp.MustCompile(`\d+`).FindAllString(first, -1)
		for _, text := range pids {
			if pid, _ := strconv.Atoi(text); syscall.Kill(pid, 0) != syscall.ESRCH {
				t.Errorf("process %d still exists", pid)
			}
		}
		if left, err := os.ReadDir(dir); len(pids) != 2 || len(left) != 0 || err != nil {
			t.Errorf("processes %v; %v is left, %v", pids, left, err)
		}
	}
}

// TestGuardThatAcceptsEverything: the story fails if a late write is accepted.
func TestGuardThatAcceptsEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &story{ctx: t.Context(), dir: dir, show: func(Line) error { return nil }}
	for file, text := range map[string]string{guarded: "from worker A", plain: "from worker A"} {
		if err := os.WriteFile(dir+"/"+file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s.compare(); s.err == nil || !strings.Contains(s.err.Error(), "guarded.txt contains") {
		t.Errorf("the comparison of the files returns %v", s.err)
	}
}

// TestSweep: a demo removes the directories of demos that were killed, and no others.
func TestSweep(t *testing.T) {
	t.Parallel()
	parent, err := os.MkdirTemp("", "sweep-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	hour := time.Now().Add(-time.Hour)
	for _, name := range []string{prefix + "killed", prefix + "early", prefix + "alive", prefix + "foreign", prefix + "new", "other"} {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if name != prefix+"early" {
			l, err := net.Listen("unix", filepath.Join(dir, socket))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if name != prefix+"alive" {
				l.(*net.UnixListener).SetUnlinkOnClose(false)
				l.Close()
			}
		}
		if name != prefix+"new" {
			if err := os.Chtimes(dir, hour, hour); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{prefix + "alive", prefix + "foreign", prefix + "new", "other"}
	if err := os.Lchown(filepath.Join(parent, prefix+"foreign"), 65534, -1); err != nil { // only root may do that
		want = slices.Delete(want, 1, 2)
	}
	sweep(parent)
	left, err := filepath.Glob(filepath.Join(parent, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}
