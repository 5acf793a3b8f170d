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

	// Group is the name or number of a group of users who share the directory: its
	// directories belong to that group with mode 2770, its files have mode 0660,
	// whatever the umask says. Who makes them must be in the group, and a directory
	// that is there already must be shared with it. Empty means this user only
	// (0700 and 0600), which is the default.
	Group string

	// Poll does without file events (inotify), of which a user has few instances:
	// each hold is then looked at ten times a second, and once a second if there
	// are more than a hundred, to find out whether it was broken or its files were
	// removed. It is for programs that hold a lock or two. Default false: an engine
	// that holds locks uses one instance, and polls when there is none left.
	Poll bool

	// BreakWait is how long Break waits for a broken holder to let go before it
	// kills the processes that keep the lock. A holder that can be reached lets
	// go within one second. Negative never kills. Zero means the default, 2 s.
	BreakWait time.Duration
}

// Engine grants locks that live in a directory. All its methods may be called
// from many goroutines at once.
// Use it through fencelock.New: its own Acquire does not renew.
type Engine struct {
	dir  string
	cfg  Config
	hub  watcher
	perm perm

	records register

	mu      sync.Mutex               // guards checked, swept, holds, own
	checked bool                     // the directory and its file system are acceptable
	swept   time.Time                // when it was last seen to whether idle names must be removed
	holds   map[string]*hold         // by owner
	own     map[string]chan struct{} // bells of all tickets of this engine, by owner

	deaf bool              // for tests: hears of nothing that others do
	hook func(token int64) // for tests: called once a token is durable
	pass func(what string) // for tests: called where others could come in between
}

var _ interface {
	driver.Engine
	driver.Lister
	driver.Breaker
	driver.OwnerBreaker
	driver.Resizer
	driver.Watcher
	driver.Inheritor
	driver.Inspector
	driver.Registrar
} = (*Engine)(nil)

// New returns an engine whose locks live below dir, which is created when it is
// first needed. It does no I/O. A nil cfg means the defaults.
func New(dir string, cfg *Config) *Engine {
	if cfg == nil {
		cfg = &Config{}
	}
	dir = filepath.Clean(dir)
	e := &Engine{
		dir: dir, cfg: *cfg, hub: watcher{poll: cfg.Poll}, perm: newPerm(dir, cfg.Group),
		holds: map[string]*hold{}, own: map[string]chan struct{}{},
	}
	e.records.engine = e
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

// ready refuses systems, file systems and directories on which locks cannot be
// trusted. It creates the directory if create is set, and remembers a good answer.
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
		if err := e.perm.makeDirs(); err != nil {
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
	if err := e.perm.check(); err != nil {
		return e.unavailable(err)
	}
	e.checked = true
	return nil
}

// unavailable puts what the system said into one line that says what to do.
func (e *Engine) unavailable(err error) error {
	switch {
	case errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrConfig): // it says so already
		return err
	case os.IsPermission(err), isReadOnly(err), isNotDir(err):
		return fmt.Errorf("%w: cannot keep locks in %q: %w; choose a directory this user may write, such as --url file:///path", driver.ErrConfig, e.dir, err)
	case isFull(err):
		return fmt.Errorf("%w: cannot keep locks in %q: %w; free some space or choose another directory", driver.ErrUnavailable, e.dir, err)
	}
	return fmt.Errorf("%w: locks in %q: %w", driver.ErrUnavailable, e.dir, err)
}

// step lets tests stop the engine where others could come in between.
func (e *Engine) step(what string) {
	if e.pass != nil {
		e.pass(what)
	}
}

// bell returns what wakes a waiter of this very engine; ok is false for one of
// any other.
func (e *Engine) bell(owner string) (bell chan struct{}, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	bell, ok = e.own[owner]
	return bell, ok
}

// setOwn notes that a ticket of owner lives in this engine.
func (e *Engine) setOwn(owner string, bell chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.own[owner] = bell
}

// dropOwn notes that a ticket of owner does not live in this engine any more.
func (e *Engine) dropOwn(owner string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.own, owner)
}
