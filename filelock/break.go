package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Break ends every acquisition of name and its minimum hold, and returns a token that
// shuts the holders out of guarded resources. It asks first: holders learn at once and let
// go within a second. After Config.BreakWait it kills the processes that still
// keep the lock, except its own. If that fails too, the token is returned
// together with an ErrUnavailable that says who keeps the lock.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	return e.breaks(ctx, &breakOp{engine: e, name: name, reason: reason})
}

// BreakOwner is Break for one acquisition: that of owner, and of nobody else. It kills
// only processes that keep this acquisition. What locked the file without a ticket, such
// as flock(1), is left alone.
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	return e.breaks(ctx, &breakOp{engine: e, name: name, reason: reason, single: true, owner: owner})
}

func (e *Engine) breaks(ctx context.Context, b *breakOp) (int64, error) {
	name := b.name
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	if err := e.dir.ready(ctx, false); err != nil {
		return 0, err
	}
	defer b.close()
	err := b.begin(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("break %q: %w", name, driver.ErrNotHeld)
	case errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrUnavailable):
		return 0, err
	case err != nil:
		return 0, e.dir.unavailable(err)
	}
	defer e.bells.wake(e.dir.gate(name).path, 0)
	return b.token, b.finish(ctx)
}

// A breakOp is one Break under way.
type breakOp struct {
	engine *Engine
	name   string
	reason string
	single bool   // of the acquisition of owner alone
	owner  string // of that one
	token  int64
	broken []*os.File // tickets whose holders have not let go yet
	pids   []int      // who made them, as they say
}

func (b *breakOp) close() {
	for _, f := range b.broken {
		f.Close()
	}
	b.broken = nil
}

// begin mints the token, takes the tickets from the holders and ends the minimum hold.
// The token is durable before any ticket goes: whoever gets the name next has a greater
// one, and a crash in between has only wasted a number.
func (b *breakOp) begin(ctx context.Context) error {
	g, err := b.engine.dir.enter(ctx, b.name, false)
	if err != nil {
		return err
	}
	defer g.leave()
	q, err := g.queueOf(ticket{})
	if err != nil {
		return err
	}
	holders := b.choose(q)
	until, err := g.notBefore()
	if err != nil {
		return err
	}
	closed := len(holders) == len(q.holders) && !until.IsZero()
	if len(holders) == 0 && (b.single || !closed && !b.heldWithoutTicket(g)) {
		return fmt.Errorf("break %q: %w", b.name, driver.ErrNotHeld)
	}
	token, f, err := g.mint()
	if err == nil {
		err = settle(f)
	}
	if err != nil {
		return err
	}
	b.token = token
	if closed {
		f, err := g.writeNumber(notBeforeFile, 0)
		if err == nil {
			err = settle(f)
		}
		if err != nil {
			return err
		}
	}
	end := ending{End: "broken", By: fmt.Sprintf("pid %d on %s", os.Getpid(), machine()), Reason: b.reason}
	for i, t := range holders { // the ending comes first: the holder reads it when its ticket goes
		if r, _, err := readRecord(b.broken[i]); err == nil && r.Machine == machine() {
			b.pids = append(b.pids, r.Process)
		}
		if f, err := g.root.OpenFile(t.fileName(), os.O_WRONLY|nonblock, 0); err == nil {
			appendEnding(f, end)
			f.Close()
		}
		if err := g.root.Remove(t.fileName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// choose returns the holders to end, and keeps their files, through which finish sees
// whether they live: a ticket is unlocked when its process and its heirs are gone.
func (b *breakOp) choose(q *queue) []ticket {
	if !b.single {
		b.broken = q.files
		return q.holders
	}
	var chosen []ticket
	for i, t := range q.holders {
		if t.owner == b.owner {
			chosen, b.broken = append(chosen, t), append(b.broken, q.files[i])
		} else {
			q.files[i].Close()
		}
	}
	return chosen
}

// heldWithoutTicket reports whether the lock is held while no ticket says so. Nobody of
// ours can come in meanwhile, since we are in the gate.
func (b *breakOp) heldWithoutTicket(g *nameLock) bool {
	f, busy := g.locked()
	if f != nil {
		f.Close()
	}
	return busy
}

// finish waits until everybody has let go, and kills who does not. The tickets are gone
// by now, but the next waiter gets the name only when the lock file is free as well.
func (b *breakOp) finish(ctx context.Context) error {
	if b.await(ctx, b.engine.breakWait) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %q is broken, but its holder has not let go yet: %w", driver.ErrUnavailable, b.name, err)
	}
	err := b.kill(ctx)
	if err == nil && b.await(ctx, time.Second) || b.letGo(ctx) {
		return nil
	}
	if err = errors.Join(err, ctx.Err()); err == nil {
		err = errors.New("it was killed, and has not ended yet")
	}
	return fmt.Errorf("%w: %q is broken, but a process keeps the lock%s: %w", driver.ErrUnavailable, b.name, b.who(), driver.OneLine(err))
}

// await polls until everybody has let go or the time is over: no system tells when a
// flock is given up.
func (b *breakOp) await(ctx context.Context, limit time.Duration) bool {
	end := time.After(limit.Abs())
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if b.letGo(ctx) {
			return true
		}
		select {
		case <-tick.C:
		case <-end:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// letGo reports whether all broken tickets are unlocked and the lock is free or
// has a new holder with a ticket. What was found unlocked once is not looked at again: a
// ticket without a name cannot be locked anew.
func (b *breakOp) letGo(ctx context.Context) bool {
	b.broken = slices.DeleteFunc(b.broken, func(f *os.File) bool {
		if errors.Is(flock(f, lockShared), errBusy) {
			return false
		}
		f.Close()
		return true
	})
	if len(b.broken) > 0 || b.single {
		return len(b.broken) == 0
	}
	bare := false
	err := b.inGate(ctx, func(g *nameLock) { bare = b.heldWithoutTicket(g) })
	return err == nil && !bare
}

// inGate calls fn inside the gate, unless somebody holds a ticket by now: such a
// holder has the lock, so everybody before it has let go.
func (b *breakOp) inGate(ctx context.Context, fn func(*nameLock)) error {
	g, err := b.engine.dir.enter(ctx, b.name, false)
	if err != nil {
		return err
	}
	defer g.leave()
	q, err := g.queueOf(ticket{})
	if err != nil {
		return err
	}
	defer q.close()
	if len(q.holders) == 0 {
		fn(g)
	}
	return nil
}

// errStranger: the kernel tells nobody which files the processes of other users have open.
var errStranger = errors.New("no process of this user has it open; that of another one can be ended by its user or by root")

// kill ends the processes that keep broken tickets or a bare lock: those that the kernel
// names, or, where it does not, those that the tickets name.
func (b *breakOp) kill(ctx context.Context) error {
	if b.engine.breakWait < 0 {
		return errors.New("it was not to be killed")
	}
	var errs []error
	for _, f := range b.broken {
		pids, known := flockOwners(f)
		if !known { // the kernel does not tell here
			pids = b.pids
		}
		errs = append(errs, killAll(pids))
		if len(pids) == 0 {
			errs = append(errs, errStranger)
		}
	}
	if b.single {
		return errors.Join(errs...)
	}
	err := b.inGate(ctx, func(g *nameLock) {
		if f, busy := g.locked(); f != nil {
			defer f.Close()
			if pids, _ := flockOwners(f); busy {
				errs = append(errs, killAll(pids))
				if len(pids) == 0 {
					errs = append(errs, errStranger)
				}
			}
		}
	})
	return errors.Join(append(errs, err)...)
}

// killAll ends processes, but never this one and never the first of all.
func killAll(pids []int) error {
	var errs []error
	for _, pid := range pids {
		if pid <= 1 || pid == os.Getpid() { // 0 and below would mean whole groups
			errs = append(errs, fmt.Errorf("pid %d is spared", pid))
		} else if err := kill(pid); err != nil {
			errs = append(errs, fmt.Errorf("pid %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// who names a process that keeps a broken ticket, if one is known.
func (b *breakOp) who() string {
	if len(b.broken) == 0 || len(b.pids) == 0 {
		return ""
	}
	return " (pid " + strconv.Itoa(b.pids[0]) + ")"
}
