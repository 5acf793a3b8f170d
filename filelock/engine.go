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

// Config configures an engine. The zero value, like a nil Config, means the defaults.
type Config struct {
	// AllowNetwork accepts a directory on a network file system (NFS, SMB, 9p, FUSE and others).
	// Exclusion then depends on that system's flock, which may cover only one host or lose its
	// locks. By default such a directory is refused with driver.ErrUnsupported.
	AllowNetwork bool

	// Group is the name or number of a group of users who share the directory. Its directories
	// belong to that group with mode 2770 and its files have mode 0660, whatever the umask is.
	// Every user must be in the group, and a directory that exists already must be shared with it.
	// Empty, the default, means that only this user can use the directory (0700 and 0600).
	Group string

	// Poll disables file events (inotify), of which each user has only a few instances. The engine
	// then checks each hold ten times a second, or once a second if there are more than a hundred,
	// to detect that it was broken or its files were removed. Set it in programs that hold only a
	// lock or two. By default an engine that holds locks uses one instance, and polls if it cannot
	// get one.
	Poll bool

	// BreakWait is how long Break waits for a holder to release the lock before it kills the holder,
	// and then for other processes that keep the lock before it kills them. A holder that can be
	// reached releases it within one second. With a negative value Break never kills. Zero means the
	// default, 2 s.
	BreakWait time.Duration
}

// Engine implements driver.Engine on the files of a directory. It is safe for concurrent use. Pass
// it to fencelock.New instead of calling Acquire directly.
type Engine struct {
	dir       directory
	waker     waker
	holds     holds
	sweeper   sweeper
	records   records
	breakWait time.Duration // Config.BreakWait, never zero

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

// New returns an engine whose locks are in the directory dir, which is created when it is first
// needed. New does no I/O. A relative dir is resolved now, so later changes of the working
// directory do not matter. A nil cfg means the defaults.
func New(dir string, cfg *Config) *Engine {
	if cfg == nil {
		cfg = &Config{}
	}
	dir = filepath.Clean(dir)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	e := &Engine{
		dir:       directory{path: dir, perm: newPerm(dir, cfg.Group), network: cfg.AllowNetwork, listing: listPatience},
		breakWait: cmp.Or(cfg.BreakWait, 2*time.Second),
	}
	e.waker = waker{dir: &e.dir, own: map[string]chan struct{}{}}
	e.holds = holds{dir: &e.dir, waker: &e.waker, watcher: watcher{poll: cfg.Poll, top: dir}, byOwner: map[string]*hold{}}
	e.sweeper.dir, e.records.dir = &e.dir, &e.dir
	return e
}

// Traits returns the engine's capabilities.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "files", Order: driver.OrderAll, Limits: true}
}

// Records returns the records, which are kept below the directory of the locks. They are on disk
// when Swap returns. They expire by the host's clock. Expired records are removed by later swaps
// that create records, at most once an hour.
func (e *Engine) Records() driver.Records { return &e.records }

// Renew checks acquisitions and returns nil or driver.ErrNotHeld for each. It extends nothing,
// because locks on files do not expire.
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

// Release ends an acquisition. It does not wait for other processes and works on a full disk. After
// Inherit, a child process that is still running keeps the lock.
func (e *Engine) Release(_ context.Context, l driver.Lease) error {
	h := e.holds.find(l)
	if h == nil || e.holds.drop(l.Owner) == nil {
		return fmt.Errorf("release %q: %w", l.Name, driver.ErrNotHeld)
	}
	return h.release()
}

// Inherit returns duplicates of an acquisition's file descriptors. A child process that gets them
// (exec.Cmd.ExtraFiles) keeps the lock as long as it runs. The caller must close them once the
// child has started.
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

// Resize sets the limit of a shared name for all processes; see [driver.Resizer]. The limit is
// durable when Resize returns, and is kept until the next Resize. After driver.ErrUnavailable
// either the old or the new limit is in force, and Resize may be called again.
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
		e.waker.wake(name, 0)
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("resize %q: %w", name, err)
	}
	return e.dir.unavailable(err)
}

// resize is Resize under the directory lock.
func (e *Engine) resize(ctx context.Context, name string, limit int) error {
	g, err := e.dir.enter(ctx, name, true)
	if err != nil {
		return err
	}
	defer g.leave()
	if err := g.writeNew(limitFile, formatNumber(int64(limit))); err != nil {
		return err
	}
	return g.up.sync()
}
