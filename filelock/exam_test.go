package filelock_test

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/enginetest"
)

func TestMain(m *testing.M) {
	enginetest.Main(map[string]func(string) driver.Engine{
		"files": func(dir string) driver.Engine { return filelock.New(dir, nil) },
		"poll":  func(dir string) driver.Engine { return filelock.New(dir, &filelock.Config{Poll: true}) },
		"full":  func(dir string) driver.Engine { return filelock.New(fill(dir), nil) },
		"user":  func(dir string) driver.Engine { return filelock.New(dir, nil) },
	})
	os.Exit(m.Run())
}

// TestExam runs every client of the exam in a process of its own.
func TestExam(t *testing.T) {
	drivertest.Run(t, drivertest.Exam{World: func(t testing.TB) drivertest.World { return world(tempDir(t)) }})
}

// world is a directory.
type world string

func (w world) Client(t testing.TB) drivertest.Client {
	return enginetest.Start(t, "files", string(w))
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
