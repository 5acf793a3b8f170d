package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Config adjusts an engine. A nil Config and a zero Config mean the defaults.
type Config struct {
	// AllowNetwork accepts a directory on a network file system (NFS, SMB, 9p,
	// FUSE and alike). Exclusion then rests on that system's own flock, which may
	// cover one host only or forget its locks. False refuses such a directory
	// with ErrUnsupported. Default false.
	AllowNetwork bool

	// BreakWait is how long Break waits for a broken holder to let go before it
	// kills the processes that keep the lock. A holder that can be reached lets
	// go within one second. Negative never kills. Zero means the default, 2 s.
	BreakWait time.Duration
}

// Engine grants locks that live in a directory. All its methods may be called
// from many goroutines at once.
type Engine struct {
	dir string
	cfg Config
	hub hub

	mu      sync.Mutex       // guards checked, holds, own
	checked bool             // the directory's file system is acceptable
	holds   map[string]*hold // by owner
	own     map[string]bool  // owners of all tickets of this engine

	hook func(token int64) // for tests: called once a token is durable
}

var _ interface {
	driver.Engine
	driver.Lister
	driver.Breaker
	driver.Resizer
	driver.Watcher
	driver.Inheritor
} = (*Engine)(nil)

// New returns an engine whose locks live below dir, which is created when it is
// first needed. It does no I/O. A nil cfg means the defaults.
func New(dir string, cfg *Config) *Engine {
	if cfg == nil {
		cfg = &Config{}
	}
	e := &Engine{dir: filepath.Clean(dir), cfg: *cfg, holds: map[string]*hold{}, own: map[string]bool{}}
	if e.cfg.BreakWait == 0 {
		e.cfg.BreakWait = 2 * time.Second
	}
	return e
}

// Traits says what the engine promises: no leases, first come first served
// between all waiters, and shared locks with a limit.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "files", Order: driver.OrderAll, Limits: true}
}

// ready refuses systems and file systems on which flock cannot be trusted. It
// creates the directory if create is set, and remembers a good answer.
func (e *Engine) ready(create bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.checked {
		return nil
	}
	if err := supported(); err != nil {
		return err
	}
	if create {
		if err := makeDirs(e.dir); err != nil {
			return e.unavailable(err)
		}
	}
	fs, network, err := fileSystem(e.dir)
	switch {
	case os.IsNotExist(err) && !create:
		return nil
	case err != nil:
		return e.unavailable(err)
	case network && !e.cfg.AllowNetwork:
		return fmt.Errorf("%w: %q is on a network file system (%s), where flock cannot be trusted; choose a local directory, or set AllowNetwork", driver.ErrUnsupported, e.dir, fs)
	}
	e.checked = true
	return nil
}

// unavailable puts what the system said into one line that says what to do.
func (e *Engine) unavailable(err error) error {
	switch {
	case errors.Is(err, driver.ErrUnavailable): // it says so already
		return err
	case os.IsPermission(err), isReadOnly(err), isNotDir(err):
		return fmt.Errorf("%w: cannot keep locks in %q: %w; choose a directory this user may write, such as --url file:///path", driver.ErrUnavailable, e.dir, err)
	case isFull(err):
		return fmt.Errorf("%w: cannot keep locks in %q: %w; free some space or choose another directory", driver.ErrUnavailable, e.dir, err)
	}
	return fmt.Errorf("%w: locks in %q: %w", driver.ErrUnavailable, e.dir, err)
}

// isOwn reports whether a ticket of owner belongs to this very engine, so that
// its end is always announced in process.
func (e *Engine) isOwn(owner string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.own[owner]
}

// setOwn notes that a ticket of owner lives, or no longer lives, in this engine.
func (e *Engine) setOwn(owner string, live bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if live {
		e.own[owner] = true
	} else {
		delete(e.own, owner)
	}
}
