package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// present returns the names that have a directory.
func present(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), ".swept.") {
			names = append(names, entry.Name())
		}
	}
	return strings.Join(names, " ")
}

func TestIdleNamesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	for i := range 20 {
		release(t, e, hold(t, e, fmt.Sprint("idle", i)))
	}
	hold(t, e, "held")
	queueUp(t, t.Context(), e, "held")
	closed := request("closed")
	closed.MinHold = time.Hour
	release(t, e, leaseOf("closed", acquire(t, e, closed)))
	if err := e.Resize(t.Context(), "limited", 3); err != nil {
		t.Fatal(err)
	}
	release(t, e, hold(t, e, "keep"))
	if err := os.WriteFile(filepath.Join(dir, "keep", "keep"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e.Sweep()
	if got := present(t, dir); got != "closed held keep limited" {
		t.Errorf("left are %s", got)
	}
	if s, err := e.List(t.Context(), driver.Query{}); err != nil || len(s) != 2 {
		t.Errorf("List: %+v, %v", s, err)
	}
}

// Directories that somebody else keeps beside those of the names are left alone.
func TestStrangersDirectoriesStay(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	release(t, e, hold(t, e, "a"))
	for dirname, file := range map[string]string{"empty": "", "other": "lock", "third": "name"} {
		if err := os.Mkdir(filepath.Join(dir, dirname), 0o700); err != nil {
			t.Fatal(err)
		}
		if file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, dirname, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e.Sweep()
	if got := present(t, dir); got != "empty other third" {
		t.Errorf("left are %s", got)
	}
}

func TestNamesAreRemovedByTheWay(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	release(t, e, hold(t, e, "old"))
	for _, file := range []string{".sweep", "old/token"} {
		long := time.Now().Add(-3 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, file), long, long); err != nil {
			t.Fatal(err)
		}
	}
	next := filelock.New(dir, nil)
	hold(t, next, "new")
	for end := time.Now().Add(patience); present(t, dir) != "new"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left are %s", present(t, dir))
		}
	}
}

// ahead makes the last token of "a" one from the future, which no clock covers.
func ahead(t *testing.T, dir string, e *filelock.Engine) int64 {
	t.Helper()
	release(t, e, hold(t, e, "a"))
	last := time.Now().Add(time.Hour).UnixMicro()
	if err := os.WriteFile(filepath.Join(dir, "a", "token"), fmt.Appendf(nil, "%020d", last), 0o600); err != nil {
		t.Fatal(err)
	}
	return last
}

func TestTokensGrowAcrossARemoval(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the wall clock is set back", verdict.Safe)
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	last := ahead(t, dir, e)
	for range 3 {
		e.Sweep()
		if got := present(t, dir); got != "" {
			t.Fatalf("left are %s", got)
		}
		l := hold(t, e, "a")
		if l.Token <= last {
			t.Errorf("token %d after %d", l.Token, last)
		}
		last = l.Token
		release(t, e, l)
	}
}

// TestPowerCutWhileANameIsRemoved goes on with what is on the disk at each step.
func TestPowerCutWhileANameIsRemoved(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the removal of an idle name is interrupted, at any step", verdict.Safe)
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	last := ahead(t, dir, e)
	var steps []string
	e.SetPass(func(step string) {
		steps = append(steps, step)
		kept := tempDir(t)
		if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
			t.Error(err)
		}
		after := filelock.New(kept, nil)
		l := hold(t, after, "a")
		if l.Token <= last {
			t.Errorf("cut at %q: token %d after %d", step, l.Token, last)
		}
		release(t, after, l)
		after.Sweep()
		if got := present(t, kept); got != "" {
			t.Errorf("cut at %q: left are %s", step, got)
		}
	})
	e.Sweep()
	if got := strings.Join(steps, " "); !strings.Contains(got, "floor") || !strings.HasSuffix(got, "locked renamed") {
		t.Errorf("the steps were %s", got)
	}
}

// TestRemovalStoppedAtEachStep stops the process that removes a name, lets another
// one ask for it, and then thaws or kills the first.
func TestRemovalStoppedAtEachStep(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the removal of an idle name is interrupted, at any step", verdict.Safe)
	for _, step := range []string{"begin", "floor", "opened", "entered", "locked", "renamed"} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,killed=%v", step, killed), func(t *testing.T) {
				dir := tempDir(t)
				e := filelock.New(dir, nil)
				last := ahead(t, dir, e)
				sweeper := proc.Start(t, "sweep at "+step, dir)
				go func() { _ = sweeper.Resize(t.Context(), "b", 1) }() // ends with the test; its process stops first
				awaitStop(t, sweeper.PID())
				granted := queueUpIfHeld(t, e, "a")
				if killed {
					sweeper.Kill(t)
				} else {
					sweeper.Thaw(t)
				}
				g := await(t, granted, "the name")
				if g.Token <= last {
					t.Errorf("token %d after %d", g.Token, last)
				}
				other := filelock.New(dir, nil)
				other.Sweep()
				if _, err := other.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("beside the holder: %v", err)
				}
				if errs := e.Renew(t.Context(), []driver.Lease{leaseOf("a", g)}); errs[0] != nil {
					t.Errorf("the holder: %v", errs[0])
				}
				release(t, e, leaseOf("a", g))
			})
		}
	}
}

// queueUpIfHeld asks for a name; the grant may come at once.
func queueUpIfHeld(t *testing.T, e driver.Engine, name string) <-chan driver.Grant {
	t.Helper()
	granted := make(chan driver.Grant, 1)
	go func() { // ends with the grant
		req := request(name)
		req.Wait = true
		g, err := e.Acquire(context.Background(), req)
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		granted <- g
	}()
	return granted
}

// TestOpenerLooksAgain stops one that has opened the directory of a name until it
// has been removed and is held by another.
func TestOpenerLooksAgain(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the removal of an idle name is interrupted, at any step", verdict.Safe)
	dir := tempDir(t)
	e, slow := filelock.New(dir, nil), filelock.New(dir, nil)
	last := ahead(t, dir, e)
	opened, goOn := make(chan struct{}), make(chan struct{})
	slow.SetPass(func(step string) {
		if step == "opened" && opened != nil {
			close(opened)
			opened = nil
			<-goOn
		}
	})
	failed := make(chan error, 1)
	first := opened
	go func() { // ends when it may go on
		_, err := slow.Acquire(context.Background(), request("a"))
		failed <- err
	}()
	await(t, first, "an open directory")
	e.Sweep()
	if got := present(t, dir); got != "" {
		t.Fatalf("left are %s", got)
	}
	if l := hold(t, e, "a"); l.Token <= last {
		t.Errorf("token %d after %d", l.Token, last)
	}
	close(goOn)
	if err := await(t, failed, "an answer"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside the holder: %v", err)
	}
}

func TestListAndWatchCostWhatIsHeld(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	for i := range 50 {
		release(t, e, hold(t, e, fmt.Sprint("idle", i)))
	}
	hold(t, e, "held1")
	hold(t, e, "held2")
	for range 2 { // the first finds out what is idle
		if s, err := e.List(t.Context(), driver.Query{}); err != nil || len(s) != 2 {
			t.Fatalf("List: %+v, %v", s, err)
		}
	}
	fresh := filelock.New(dir, nil)
	looks := 0
	fresh.SetPass(func(step string) {
		if step == "opened" {
			looks++
		}
	})
	if _, err := fresh.List(t.Context(), driver.Query{}); err != nil || looks > 4 {
		t.Errorf("%d looks at 2 held of 52 names; %v", looks, err)
	}
	looks = 0
	enough := errors.New("enough")
	seen := 0
	err := fresh.Watch(t.Context(), driver.Query{}, func(driver.Event) error {
		if seen++; seen == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || looks > 4 {
		t.Errorf("%d looks at 2 held of 52 names; %v", looks, err)
	}
}
