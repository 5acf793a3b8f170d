//go:build unix

package fence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/memlock"
)

// A holder that was stopped for longer than its lease writes late, and bounces.
func ExampleReplaceFile() {
	dir, err := os.MkdirTemp("", "fence-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	report := filepath.Join(dir, "report")
	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)
	ctx := context.Background()

	paused, err := locks.Acquire(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("report")                               // its lease ends

	err = locks.Do(ctx, "report", func(ctx context.Context) error {
		return fence.ReplaceFile(ctx, report, []byte("new"), 0o644)
	})
	fmt.Println("next:", err)
	err = fence.ReplaceFile(inFlight, report, []byte("old"), 0o644)
	fmt.Println("late:", errors.Is(err, fence.ErrStale))
	data, _ := os.ReadFile(report)
	fmt.Println("the file:", string(data))
	// Output:
	// next: <nil>
	// late: true
	// the file: new
}

// fileIn is a guarded file in a new directory.
func fileIn(t *testing.T) (r guardtest.Resource, dir string) {
	dir, err := os.MkdirTemp("", "fence-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "file")
	return guardtest.Resource{
		Name:  path,
		Write: func(ctx context.Context, v string) error { return fence.ReplaceFile(ctx, path, []byte(v), 0o640) },
		Read: func() (string, error) {
			data, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				return "", nil
			}
			return string(data), err
		},
	}, dir
}

func TestReplaceFile(t *testing.T) {
	r, dir := fileIn(t)
	if err := guardtest.Run(t.Context(), r); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(r.Name)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file has permissions %v, %v", info.Mode(), err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("the directory has %v, %v, want the file and its floor", names, err)
	}
	if err := os.WriteFile(r.Name+".fence", []byte("high\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(under(t, 1<<61), "v"); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a floor that is no number: %v", err)
	}
	if err := fence.ReplaceFile(under(t, 1), filepath.Join(dir, "none", "file"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// Users who share the file share its floor, whatever the umask of the first one is.
func TestReplaceFileUmask(t *testing.T) {
	r, _ := fileIn(t)
	defer syscall.Umask(syscall.Umask(0o077))
	if err := r.Write(under(t, 1), "v"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{r.Name, r.Name + ".fence"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s has permissions %v, %v", name, info.Mode(), err)
		}
	}
}

// Of many writers at once, whoever has the greatest token has the last word.
func TestReplaceFileRace(t *testing.T) {
	r, _ := fileIn(t)
	var all sync.WaitGroup
	for token := range int64(24) {
		all.Go(func() { // ends with its write
			err := r.Write(under(t, token+1), fmt.Sprint(token+1))
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := r.Read(); got != "24" || err != nil {
		t.Errorf("the file has %q, %v", got, err)
	}
}

// A writer that is stopped in the middle keeps the others waiting, but no longer than
// they like.
func TestReplaceFileWaits(t *testing.T) {
	r, dir := fileIn(t)
	other, err := os.Create(r.Name + ".fence")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(under(t, 1))
	cancel()
	if err := r.Write(ctx, "v"); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was cancelled: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) != 0 {
		t.Errorf("it left %s", strings.Join(names, " "))
	}
}

// Under a context that has ended nothing is written, also if nobody is in the way. The error
// says that it has ended, and why.
func TestReplaceFileEnded(t *testing.T) {
	r, dir := fileIn(t)
	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)
	lock := acquire(t, locks, "lock")
	engine.Lose("lock")
	<-lock.Context().Done()
	if err := r.Write(lock.Context(), "late"); !errors.Is(err, context.Canceled) || !errors.Is(err, fencelock.ErrLost) {
		t.Errorf("after the lock was lost: %v, want context.Canceled and ErrLost", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("it left %v, %v", names, err)
	}
}

// The tracer runs when the lock of the floor is free again, and one that panics leaves
// nothing behind.
func TestReplaceFileTracer(t *testing.T) {
	r, dir := fileIn(t)
	told := false
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
		Stale: func(context.Context, fencelock.TraceStale) {
			told = true
			floor, err := os.Open(r.Name + ".fence")
			if err == nil {
				err = errors.Join(syscall.Flock(int(floor.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), floor.Close())
			}
			if err != nil {
				t.Errorf("while the tracer runs: %v", err)
			}
			panic("tracer")
		},
	}})
	lock := acquire(t, locks, "lock")
	if err := r.Write(under(t, lock.Token()+1), "next"); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = r.Write(lock.Context(), "late")
	}()
	if !told {
		t.Error("the tracer was not told")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("the directory has %v, %v, want the file and its floor", names, err)
	}
}

// A file that has the name of a floor cannot be replaced: it may be one.
func TestReplaceFileOfAFloor(t *testing.T) {
	r, _ := fileIn(t)
	if err := r.Write(under(t, 9), "first"); err != nil {
		t.Fatal(err)
	}
	if err := fence.ReplaceFile(under(t, 1), r.Name+".fence", []byte("0"), 0o600); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a floor was replaced: %v", err)
	}
	if err := r.Write(under(t, 8), "late"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a late write: %v", err)
	}
}

// A crash between the floor and the rename leaves the old file, which only the same
// holder, or a later one, may replace.
func TestReplaceFileCrash(t *testing.T) {
	r, _ := fileIn(t)
	if err := r.Write(under(t, 5), "old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.Name+".fence", fmt.Appendf(nil, "%019d\n", 7), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(under(t, 5), "late"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a late write after a crash: %v", err)
	}
	if err := r.Write(under(t, 7), "new"); err != nil {
		t.Errorf("the same write after a crash: %v", err)
	}
}

// A floor that its writer could not sync, or did not live to, is synced before the next file
// goes to its place, also if it is high enough: a power cut would lower it otherwise, and
// leave the file.
func TestReplaceFileSyncsTheFloorOfOthers(t *testing.T) {
	r, _ := fileIn(t)
	failing, synced := true, false
	defer fence.OnSync(func(file *os.File, sync func() error) error {
		if file.Name() != r.Name+".fence" {
			return sync()
		}
		if failing {
			return syscall.EIO
		}
		if data, err := r.Read(); data != "" || err != nil {
			t.Errorf("the file was replaced before its floor was synced: %q, %v", data, err)
		}
		synced = true
		return sync()
	})()
	if err := r.Write(under(t, 5), "lost"); !errors.Is(err, syscall.EIO) {
		t.Errorf("a floor that cannot be synced: %v", err)
	}
	failing = false
	if err := r.Write(under(t, 5), "written"); err != nil {
		t.Fatal(err)
	}
	if !synced {
		t.Error("the file was replaced, and its floor was not synced")
	}
}

// Guards written in Go without one of their parts do not pass.
func TestMutants(t *testing.T) {
	for name, m := range map[string]struct {
		stale func(fence.Fence, int64) bool
		raise func(fence.Fence, int64) int64
	}{
		"no comparison":    {stale: func(fence.Fence, int64) bool { return false }},
		"refuses the same": {stale: func(f fence.Fence, floor int64) bool { return f.Token <= floor }},
		"stores the token": {raise: func(f fence.Fence, floor int64) int64 { return max(f.Token, floor) }},
		"lowers the floor": {raise: func(f fence.Fence, _ int64) int64 { return f.Floor }},
		"never raises":     {raise: func(_ fence.Fence, floor int64) int64 { return floor }},
	} {
		mend := fence.Break(m.stale, m.raise)
		r, _ := fileIn(t)
		for what, r := range map[string]guardtest.Resource{"file": r, "HTTP": service(t, new(fence.Memory), "r")} {
			if err := guardtest.Run(t.Context(), r); err == nil {
				t.Errorf("%s, %s: passes", name, what)
			}
		}
		mend()
	}
}

// TestPathsOfNoFile: a path that names no file is an error, and leaves nothing behind.
func TestPathsOfNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, path := range []string{"", ".", "..", "./", "sub/", "sub/.", dir + "/"} {
		if err := fence.ReplaceFile(under(t, 1), path, []byte("0"), 0o600); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%q: %v, want an error", path, err)
		}
	}
	for _, at := range []string{dir, filepath.Dir(dir)} {
		left, err := os.ReadDir(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range left {
			if strings.Contains(file.Name(), ".fence") {
				t.Errorf("%s was left in %s", file.Name(), at)
			}
		}
	}
}

// TestLateWritesAfterAMaximumHold: of two writers, one ignores the end of its context at its maximum
// hold. The guard refuses what it writes after the next holder has written.
func TestLateWritesAfterAMaximumHold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	synctest.Test(t, func(t *testing.T) {
		locks := fencelock.New(memlock.New(nil), nil)
		hanging := locks.With(fencelock.Options{TTL: time.Second, Grace: 300 * time.Millisecond, MaxHold: 2 * time.Second})
		err := hanging.Do(t.Context(), "report", func(ctx context.Context) error {
			late := context.WithoutCancel(ctx)
			if err := fence.ReplaceFile(late, path, []byte("first"), 0o600); err != nil {
				t.Error(err)
			}
			if err := locks.Do(t.Context(), "report", func(ctx context.Context) error {
				return fence.ReplaceFile(ctx, path, []byte("next"), 0o600)
			}); err != nil {
				t.Error(err)
			}
			return fence.ReplaceFile(late, path, []byte("late"), 0o600)
		})
		if !errors.Is(err, fence.ErrStale) || !errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("the late write: %v", err)
		}
	})
	if text, err := os.ReadFile(path); err != nil || string(text) != "next" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
