package filelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	dir       directory
	bells     bells
	holds     holds
	sweeper   sweeper
	records   records
	breakWait time.Duration // Config.BreakWait, which is not zero any more

	hook func(token int64) // for tests: called once a token is durable
}

var _ interface {
	driver.Engine
	driver.Lister
	driver.Breaker
	driver.OwnerBreaker
	driver.Resizer
	driver.Watcher
	driver.Inspector
	driver.RecordKeeper
} = (*Engine)(nil)

// New returns an engine whose locks live below dir, which is created when it is
// first needed. It does no I/O. A relative dir stands for the same directory as long as the
// engine is used, wherever the process goes. A nil cfg means the defaults.
func New(dir string, cfg *Config) *Engine {
	if cfg == nil {
		cfg = &Config{}
	}
	dir = filepath.Clean(dir)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	e := &Engine{
		dir:       directory{path: dir, perm: newPerm(dir, cfg.Group), network: cfg.AllowNetwork},
		bells:     bells{own: map[string]chan struct{}{}},
		breakWait: cmp.Or(cfg.BreakWait, 2*time.Second),
	}
	e.holds = holds{bells: &e.bells, watcher: watcher{poll: cfg.Poll, top: dir}, byOwner: map[string]*hold{}}
	e.sweeper.dir, e.records.dir = &e.dir, &e.dir
	return e
}

// Traits says what the engine promises: no leases, first come first served
// between all waiters, and shared locks with a limit.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "files", Order: driver.OrderAll, Limits: true}
}

// Records returns the records that are kept below the directory of the locks. They
// are on disk when Swap returns. Expiry goes by the clock of the host. What has
// expired is removed when a record is made near it, once an hour.
func (e *Engine) Records() driver.Records { return &e.records }

// Renew verifies acquisitions: for each nil, or ErrNotHeld. It extends nothing,
// since nothing expires here.
func (e *Engine) Renew(_ context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		h := e.holds.find(l)
		if h == nil || !h.stands() {
			errs[i] = fmt.Errorf("renew %q: %w", l.Name, driver.ErrNotHeld)
		}
	}
	return errs
}

// Release ends an acquisition. It does not wait for others and works on a full
// disk. After Inherit, a child that still lives keeps the lock.
func (e *Engine) Release(_ context.Context, l driver.Lease) error {
	h := e.holds.find(l)
	if h == nil || e.holds.drop(l.Owner) == nil {
		return fmt.Errorf("release %q: %w", l.Name, driver.ErrNotHeld)
	}
	return h.release()
}

// Inherit returns duplicates of the descriptors an acquisition lives in. A child
// process that gets them (exec.Cmd.ExtraFiles) keeps the lock alive for as long
// as it lives. The caller closes them once the child has started.
func (e *Engine) Inherit(l driver.Lease) ([]*os.File, error) {
	var files []*os.File
	err := driver.ErrNotHeld
	if h := e.holds.find(l); h != nil {
		files, err = h.inherit()
	}
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		return nil, fmt.Errorf("inherit %q: %w", l.Name, err)
	case err != nil:
		return nil, e.dir.unavailable(err)
	}
	return files, nil
}

// Resize sets the limit of a shared name for everybody; see [driver.Resizer].
// It returns once the limit is durable, and the directory of the name keeps it
// for ever. When it fails with ErrUnavailable the old limit or the new one is in
// force, and it may be called again.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	if err := e.dir.ready(ctx, true); err != nil {
		return err
	}
	err := e.resize(ctx, name, limit)
	switch {
	case err == nil:
		e.bells.wake(e.dir.gate(name).path, 0)
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("resize %q: %w", name, err)
	}
	return e.dir.unavailable(err)
}

// resize is Resize inside the gate.
func (e *Engine) resize(ctx context.Context, name string, limit int) error {
	g, err := e.dir.enter(ctx, name, true)
	if err != nil {
		return err
	}
	defer g.leave()
	if err := g.writeNew(limitFile, formatNumber(int64(limit))); err != nil {
		return err
	}
	return syncDir(e.dir.path)
}
