//go:build unix

package semaphore_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/semaphore"
)

// orders are what a worker, a process that takes permits, is to do.
type orders struct {
	Store  engines.Store
	Book   string        // the file in which it writes what it does
	Weight int           // of each permit
	Work   time.Duration // how long it keeps a permit
	Rounds int           // how many permits it takes; 0 means until it is told to stop
	TTL    time.Duration // of each permit
}

// obey takes permits until the parent says stop, or is gone.
func (o orders) obey(in *bufio.Scanner) error {
	told, cancel := context.WithCancel(context.Background())
	go func() { // ends with its parent's end of the pipe, or with the process
		in.Scan()
		cancel()
	}()
	engine, err := o.Store.Open()
	if err != nil {
		return err
	}
	books, err := os.OpenFile(o.Book, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: o.TTL})
	joins := sync.OnceFunc(func() { _ = note(books, "waits", os.Getpid()) })
	s := semaphore.New(locks.With(fencelock.Options{OnWait: func(fencelock.WaitInfo) { joins() }}), name, size)
	for round := 0; told.Err() == nil && (o.Rounds == 0 || round < o.Rounds); round++ {
		permit, err := s.Acquire(told, o.Weight)
		switch {
		case told.Err() != nil:
			if err == nil {
				err = permit.Release()
			}
			return ignore(err, context.Canceled)
		case err != nil:
			return err
		}
		if err := o.use(books, permit); err != nil {
			return err
		}
	}
	return nil
}

// use writes down that the permit stands and, before it is given back, that it ends.
func (o orders) use(books io.Writer, permit *fencelock.Lock) error {
	if permit.Err() != nil {
		return nil
	}
	if err := note(books, "+", os.Getpid(), max(1, o.Weight), permit.Token()); err != nil {
		return err
	}
	select {
	case <-time.After(o.Work):
	case <-permit.Context().Done():
	}
	end := "-"
	if permit.Err() != nil {
		end = "lost"
	}
	if err := note(books, end, os.Getpid(), max(1, o.Weight), permit.Token()); err != nil {
		return err
	}
	return ignore(permit.Release(), fencelock.ErrNotHeld)
}

// ignore returns err, unless it is the one that may be.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
