package filelock_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

func TestMain(m *testing.M) {
	kinds := map[string]func(string) driver.Engine{
		"files": func(dir string) driver.Engine { return reusable{filelock.New(dir, nil)} },
		"poll":  func(dir string) driver.Engine { return filelock.New(dir, &filelock.Config{Poll: true}) },
		"full":  func(dir string) driver.Engine { return filelock.New(fill(dir), nil) },
		"mask":  func(dir string) driver.Engine { return filelock.New(dir, maskAll(&filelock.Config{})) },
		"mask 65534": func(dir string) driver.Engine {
			return filelock.New(dir, maskAll(&filelock.Config{Group: "65534"}))
		},
		"user": func(dir string) driver.Engine { return filelock.New(dir, nil) },
	}
	for _, step := range []string{"begin", "floor", "opened", "entered", "locked", "renamed"} {
		kinds["sweep at "+step] = func(dir string) driver.Engine { return sweeper{filelock.New(dir, nil), step} }
	}
	kinds["stop inside"] = func(dir string) driver.Engine {
		e := filelock.New(dir, nil)
		e.SetPass(func(step string) {
			if step == "entered" {
				stopMyself()
			}
		})
		return e
	}
	for _, group := range []string{"65534", strconv.Itoa(os.Getgid())} {
		kinds["group "+group] = func(dir string) driver.Engine { return filelock.New(dir, &filelock.Config{Group: group}) }
	}
	proc.Main(kinds)
	os.Exit(m.Run())
}

// reusable is an engine whose process may serve another test, in a directory of its own.
type reusable struct{ *filelock.Engine }

func (reusable) Reusable() {}

// TestExam runs every client of the conformance suite in a process of its own.
func TestExam(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the holder is killed", verdict.Safe)
	verdict.Is(t, "Files: a waiter dies", verdict.Safe)
	verdict.Is(t, "Files: a waiter freezes", verdict.Safe)
	examtest.Parallel(t, drivertest.Suite{World: func(t testing.TB) drivertest.World { return world(tempDir(t)) }})
}

// world is a directory.
type world string

func (w world) Client(t testing.TB) drivertest.Client {
	return proc.Start(t, "files", string(w))
}

func (w world) Restart(testing.TB) {} // there is nothing to restart

func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "filelock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A sweeper starts to remove idle names when it is told to resize any, and stops
// its own process at one step of that.
type sweeper struct {
	*filelock.Engine
	step string
}

func (s sweeper) Resize(context.Context, string, int) error {
	var once sync.Once
	s.SetPass(func(step string) {
		if step == s.step {
			once.Do(func() { stopMyself() })
		}
	})
	go s.Sweep() // ends with the sweep, or with the process
	return nil
}
