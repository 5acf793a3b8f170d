// Package fencelock has the shape of the library. The same programs are also checked with the library.
package fencelock

import (
	"context"
	"errors"
	"time"
)

var ErrHeld, ErrLost = errors.New("held"), errors.New("lost")

type Options struct {
	TTL, Wait time.Duration
	Shared    bool
}

type Locker struct{}

func (l *Locker) With(o Options) *Locker     { return l }
func (l *Locker) WithOnly(o Options) *Locker { return l }

func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return fn(ctx)
}
func (l *Locker) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return fn(ctx)
}
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(ctx context.Context) error) error {
	return fn(ctx)
}
func (l *Locker) TryDoAll(ctx context.Context, names []string, fn func(ctx context.Context) error) error {
	return fn(ctx)
}
func (l *Locker) Acquire(ctx context.Context, name string) (*Lock, error)    { return nil, nil }
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lock, error) { return nil, nil }
func (l *Locker) Adopt(ctx context.Context, lease Lease) (*Lock, error)      { return nil, nil }
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (*LockSet, error) {
	return nil, nil
}
func (l *Locker) TryAcquireAll(ctx context.Context, names ...string) (*LockSet, error) {
	return nil, nil
}

type Lease struct{}

type Lock struct{}

func (l *Lock) Context() context.Context                        { return nil }
func (l *Lock) ContextWith(ctx context.Context) context.Context { return ctx }
func (l *Lock) Detach() error                                   { return nil }
func (l *Lock) Err() error                                      { return nil }
func (l *Lock) Lease() Lease                                    { return Lease{} }
func (l *Lock) Name() string                                    { return "" }
func (l *Lock) Release() error                                  { return nil }
func (l *Lock) SetMaxHold(d time.Duration) error                { return nil }
func (l *Lock) Token() int64                                    { return 0 }
func TokenFrom(ctx context.Context) (token int64, ok bool)      { return 0, false }
func WithNote(ctx context.Context, note string) context.Context { return ctx }

type Held struct{ Token int64 }

func HeldFrom(ctx context.Context) (held Held, ok bool) { return held, false }

type LockSet struct{}

func (s *LockSet) Context() context.Context { return nil }
func (s *LockSet) Err() error               { return nil }
func (s *LockSet) Release() error           { return nil }
func (s *LockSet) Locks() []*Lock           { return nil }
