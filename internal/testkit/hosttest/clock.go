//go:build unix

package hosttest

import (
	_ "embed" // the source of the shim
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed shim/clock.c
var shim []byte

// A Clock is the wall clock of the servers that are started with it. It runs with the machine's and
// jumps when it is set. Their monotonic clocks, and all clocks of this process, are not affected.
// It is safe for concurrent use.
type Clock struct {
	dir   string
	ahead *os.File // how far it is ahead, in nanoseconds; the servers have it mapped
}

// ClockIfPossible is [NewClock], or nil if the machine cannot set the clock of one program: it needs
// Linux and a C compiler.
func ClockIfPossible(t TB) *Clock {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil || runtime.GOOS != "linux" {
		return nil
	}
	return NewClock(t)
}

// NewClock returns a clock that agrees with the machine's. Start servers with it by
// redistest.StartRedisBy and pgtest.StartPostgresBy.
func NewClock(t TB) *Clock {
	t.Helper()
	c := &Clock{dir: Dir(t, "fencelock-clock-")}
	must(t, os.Chmod(c.dir, 0o755)) // PostgreSQL runs as another user
	source := filepath.Join(c.dir, "clock.c")
	must(t, os.WriteFile(source, shim, 0o600))
	cc := exec.Command("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", c.library(), source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v (on Debian: apt-get install gcc libc6-dev)\n%s", cc, err, out)
	}
	must(t, os.Chmod(c.library(), 0o755))
	must(t, os.WriteFile(c.file(), make([]byte, 8), 0o600))
	must(t, os.Chmod(c.file(), 0o644))
	var err error
	c.ahead, err = os.OpenFile(c.file(), os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { _ = c.ahead.Close() })
	return c
}

func must(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Set sets the clock ahead of the machine's, or back if ahead is negative. It takes effect the next
// time a server reads the clock.
func (c *Clock) Set(ahead time.Duration) {
	if _, err := c.ahead.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead)), 0); err != nil {
		panic(err)
	}
}

// Env returns the environment that makes a server use the clock. That of no clock is empty.
func (c *Clock) Env() []string {
	if c == nil {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.library(), "FENCELOCK_CLOCK=" + c.file()}
}

func (c *Clock) library() string { return filepath.Join(c.dir, "clock.so") }
func (c *Clock) file() string    { return filepath.Join(c.dir, "ahead") }
