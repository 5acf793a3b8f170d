package redislock_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/redislock"
)

// envProgram is set for TestProgram: the address of the server.
const envProgram = "FENCELOCK_TEST_PROGRAM"

// order is what a program is to do: acquire, detach, adopt, check, write or release.
type order struct {
	Do    string
	Lease fencelock.Lease // for adopt
	Path  string          // for write
}

// result is what came of it.
type result struct {
	Lease                fencelock.Lease // of the lock that the program holds, or held last
	Failed               string
	NotHeld, Lost, Stale bool // what the error is
}

// TestProgram is a process of another test: a whole program with locks. It does what it reads.
func TestProgram(t *testing.T) {
	addr := os.Getenv(envProgram)
	if addr == "" {
		return
	}
	p := &program{locks: fencelock.New(redislock.New(dial(addr), nil), nil).With(fencelock.Options{TTL: 10 * time.Second})}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for o := (order{}); in.Decode(&o) == nil; {
		err := p.obey(t.Context(), o)
		r := result{NotHeld: errors.Is(err, fencelock.ErrNotHeld), Lost: errors.Is(err, fencelock.ErrLost), Stale: errors.Is(err, fence.ErrStale)}
		if err != nil {
			r.Failed = err.Error()
		}
		if p.lock != nil {
			r.Lease = p.lock.Lease()
		}
		if err := out.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
}

// program is a process with one lock.
type program struct {
	locks *fencelock.Locker
	lock  *fencelock.Lock // the last one
}

func (p *program) obey(ctx context.Context, o order) (err error) {
	var lock *fencelock.Lock
	switch o.Do {
	case "acquire":
		lock, err = p.locks.TryAcquire(ctx, "n")
	case "adopt":
		lock, err = p.locks.Adopt(ctx, o.Lease)
	case "detach":
		return p.lock.Detach()
	case "check":
		return p.lock.Err()
	case "write": // even after the end of the hold, as work that does not stop
		return fence.ReplaceFile(context.WithoutCancel(p.lock.Context()), o.Path, []byte(p.lock.Owner()), 0o600)
	case "release":
		return p.lock.Release()
	}
	if lock != nil {
		p.lock = lock
	}
	return err
}

// running is a program in a process of its own.
type running struct {
	t   *testing.T
	in  *json.Encoder
	out *json.Decoder
}

func (s scene) program(t *testing.T) *running {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestProgram$", "-test.count=1")
	cmd.Env = append(os.Environ(), envProgram+"="+s.server.Addr())
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return &running{t, json.NewEncoder(in), json.NewDecoder(out)}
}

// do lets the program do something.
func (r *running) do(o order) (got result) {
	if err := r.in.Encode(o); err != nil {
		r.t.Error(err)
	}
	if err := r.out.Decode(&got); err != nil {
		r.t.Error(err)
	}
	return got
}

// done is do for what must succeed.
func (r *running) done(o order) result {
	r.t.Helper()
	got := r.do(o)
	if got.Failed != "" {
		r.t.Fatalf("%s: %s", o.Do, got.Failed)
	}
	return got
}

// TestAdoptBetweenThreePrograms: a program acquires a lock and sends its lease to two others, as a
// message that is delivered twice. One of them gets the lock, with a greater token, and writes to a
// guarded file. The write of the first program is then refused. Without Detach, the first program
// loses its lock at its next renewal.
func TestAdoptBetweenThreePrograms(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, detach := range []bool{true, false} {
		a, b, c := s.program(t), s.program(t), s.program(t)
		write := order{Do: "write", Path: filepath.Join(t.TempDir(), "data")}
		first := a.done(order{Do: "acquire"})
		a.done(write)
		if detach {
			a.done(order{Do: "detach"})
		}
		var got [2]result
		var both sync.WaitGroup
		for i, p := range []*running{b, c} {
			both.Go(func() { got[i] = p.do(order{Do: "adopt", Lease: first.Lease}) })
		}
		both.Wait()
		winner, w, l := b, got[0], got[1]
		if l.Failed == "" {
			winner, w, l = c, l, w
		}
		if w.Failed != "" || !l.NotHeld || w.Lease.Token <= first.Lease.Token {
			t.Fatalf("after token %d: %+v", first.Lease.Token, got)
		}
		winner.done(write)
		if r := a.do(write); !r.Stale {
			t.Errorf("the first program writes: %+v", r)
		}
		s.until("the first program knows", func() bool { r := a.do(order{Do: "check"}); return r.NotHeld && detach || r.Lost && !detach })
		winner.done(order{Do: "check"})
		if text, err := os.ReadFile(write.Path); err != nil || string(text) != w.Lease.Owner {
			t.Errorf("the file has %q, %v, want %q", text, err, w.Lease.Owner)
		}
		winner.done(order{Do: "release"})
	}
}
