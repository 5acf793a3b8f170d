package semaphore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/semaphore"
)

const (
	name = "gpu"
	ttl  = 10 * time.Second
)

// process is a semaphore of a process of its own.
type process struct {
	engine *memlock.Engine
	locks  *fencelock.Locker
	*semaphore.Semaphore
}

// start makes a process that uses the semaphore with the given size.
func start(store *memlock.Engine, size int) *process {
	p := &process{engine: store.Client()}
	p.locks = fencelock.New(p.engine, nil).With(fencelock.Options{TTL: ttl})
	p.Semaphore = semaphore.New(p.locks, name, size)
	return p
}

// take acquires a permit at once, or fails the test.
func (p *process) take(t *testing.T, weight int) *fencelock.Lock {
	t.Helper()
	permit, err := p.TryAcquire(t.Context(), weight)
	if err != nil {
		t.Fatalf("a permit of %d: %v", weight, err)
	}
	return permit
}

func release(t *testing.T, permits ...*fencelock.Lock) {
	t.Helper()
	for _, p := range permits {
		if err := p.Release(); err != nil {
			t.Errorf("release of permit %d: %v", p.Token(), err)
		}
	}
}

// wantStatus fails the test unless so much is in force, taken and waited for.
func wantStatus(t *testing.T, s *semaphore.Semaphore, size, taken, waiters int) {
	t.Helper()
	st, err := s.Status(t.Context())
	if err != nil || st.Size != size || st.Taken != taken || len(st.Waiters) != waiters || st.Free() != max(0, size-taken) {
		t.Errorf("size %d, taken %d, free %d, %d waiters, %v; want size %d, taken %d, %d waiters",
			st.Size, st.Taken, st.Free(), len(st.Waiters), err, size, taken, waiters)
	}
}

func want(t *testing.T, what string, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s: got %v, want %v", what, err, target)
		}
	}
}
