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

// Break ends every acquisition of name and its minimum hold. It returns a fencing token that is
// greater than theirs, so that guarded resources reject the old holders.
//
// Holders are notified at once and release the lock within a second. After Config.BreakWait, Break
// kills a holder that still keeps the lock, and after the same time again all other processes that
// keep it: a child that supervises the holder's work has that time to end it. Break never kills its
// own process. If all that fails, it returns the token together with a driver.ErrUnavailable that
// says which process keeps the lock.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	return e.breaks(ctx, &breakOp{engine: e, name: name, reason: reason})
}

// BreakOwner is like Break, but ends only the acquisition of owner and kills only processes that
// keep it. It ignores a process that locked the file without a ticket, such as flock(1).
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
	defer e.waker.wake(name, 0)
	return b.token, b.finish(ctx)
}

// A breakOp is one call of Break or BreakOwner.
type breakOp struct {
	engine *Engine
	name   string
	reason string
	single bool   // end only the acquisition of owner
	owner  string // with single
	token  int64
	broken []*os.File // tickets whose holders have not released the lock yet
	pids   []int      // the processes named in them
}

func (b *breakOp) close() {
	for _, f := range b.broken {
		f.Close()
	}
	b.broken = nil
}

// begin issues the token, removes the holders' tickets and ends the minimum hold. The token is
// durable before any ticket is removed, so that the next holder gets a greater one. A crash in
// between only wastes a number.
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
	token, f, err := g.issue()
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
	for i, t := range holders { // write the ending first: the holder reads it when its ticket is removed
		if r, _, err := readRecord(b.broken[i]); err == nil && r.Machine == machine() {
			b.pids = append(b.pids, r.Process)
		}
		if f, err := g.openFile(t.fileName(), os.O_WRONLY); err == nil {
			appendEnding(f, end)
			f.Close()
		}
		if err := g.remove(t.fileName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// choose returns the holders to end and keeps their files. finish uses these to see whether they
// are still locked: a ticket is unlocked when its process and all heirs of its descriptors are
// gone.
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

// heldWithoutTicket reports whether the lock file is locked although no ticket holds. No process of
// this engine can acquire the lock meanwhile, because the caller has the directory lock.
func (b *breakOp) heldWithoutTicket(g *nameLock) bool {
	f, busy := g.locked()
	if f != nil {
		f.Close()
	}
	return busy
}

// finish waits until all holders have released the lock, and kills those that do not. The tickets
// are gone by now, but the next waiter gets the name only when the lock file is free too.
func (b *breakOp) finish(ctx context.Context) error {
	if b.await(ctx, b.engine.breakWait) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %q is broken, but its holder has not released it yet: %w", driver.ErrUnavailable, b.name, err)
	}
	n, err := b.kill(ctx, true)
	if err == nil && n > 0 && b.await(ctx, b.engine.breakWait) {
		return nil
	}
	if err == nil { // what a holder that cannot be killed has started would go on with nobody to end it
		_, err = b.kill(ctx, false)
	}
	// A process that was killed closes its files one after another, so the lock may have no owner
	// for a moment.
	if (err == nil || errors.Is(err, errStranger)) && b.await(ctx, time.Second) || b.letGo(ctx) {
		return nil
	}
	if err = errors.Join(err, ctx.Err()); err == nil {
		err = errors.New("it was killed, but has not ended yet")
	}
	return fmt.Errorf("%w: %q is broken, but a process keeps the lock%s: %w", driver.ErrUnavailable, b.name, b.who(), driver.OneLine(err))
}

// await polls until all holders have released the lock or the time is up. There is no notification
// when a flock is released.
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

// letGo reports whether all broken tickets are unlocked, and the lock file is free or has a new
// holder with a ticket. A ticket found unlocked is not checked again: it has been removed, so it
// cannot be locked again.
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

// inGate calls fn under the directory lock, unless there is a new holder with a ticket: it has the
// lock, so all previous holders have released it.
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

// errStranger: the kernel does not reveal which files processes of other users have open.
var errStranger = errors.New("no process of this user has it open; if another user's process does, that user or root must end it")

// kill ends the processes that keep broken tickets or the lock file, and returns how many they are:
// those that the kernel reports, or, if it reports none, those named in the tickets. With holders,
// it ends only those of them that are named in the tickets.
func (b *breakOp) kill(ctx context.Context, holders bool) (n int, err error) {
	if b.engine.breakWait < 0 {
		return 0, errors.New("a negative BreakWait forbids to kill it")
	}
	var errs []error
	end := func(pids []int) {
		if holders {
			pids = slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
				return !slices.Contains(b.pids, pid) || pid == os.Getpid()
			})
		} else if len(pids) == 0 {
			errs = append(errs, errStranger)
		}
		n += len(pids)
		errs = append(errs, killAll(pids))
	}
	for _, f := range b.broken {
		pids, known := flockOwners(f)
		if !known { // the kernel does not report them
			pids = b.pids
		}
		end(pids)
	}
	if b.single {
		return n, errors.Join(errs...)
	}
	err = b.inGate(ctx, func(g *nameLock) {
		if f, busy := g.locked(); f != nil {
			defer f.Close()
			if pids, _ := flockOwners(f); busy {
				end(pids)
			}
		}
	})
	return n, errors.Join(append(errs, err)...)
}

// killAll ends processes, but never this one and never process 1.
func killAll(pids []int) error {
	var errs []error
	for _, pid := range pids {
		if pid <= 1 || pid == os.Getpid() { // 0 and below would signal whole groups
			errs = append(errs, fmt.Errorf("pid %d is never killed", pid))
		} else if err := kill(pid); err != nil {
			errs = append(errs, fmt.Errorf("pid %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// who returns a process that keeps a broken ticket, if one is known.
func (b *breakOp) who() string {
	if len(b.broken) == 0 || len(b.pids) == 0 {
		return ""
	}
	return " (pid " + strconv.Itoa(b.pids[0]) + ")"
}
