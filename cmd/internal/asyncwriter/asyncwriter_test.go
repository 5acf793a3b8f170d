package asyncwriter_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/cmd/internal/asyncwriter"
)

// slow is a writer whose Write blocks until opened is closed, and then returns err.
type slow struct {
	opened chan struct{}
	err    error
	bytes.Buffer
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.opened
	n, _ := s.Buffer.Write(p)
	return n, s.err
}

// TestWriter: nobody waits for the reader but Room, until Hurry. Everything arrives in order.
func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &slow{opened: make(chan struct{})}
		w := asyncwriter.New(to, 0)
		w.Write([]byte("a"))
		synctest.Wait() // it is being written
		w.Write([]byte("b"))
		w.Room(1)
		w.Write([]byte("c"))
		waited := make(chan struct{})
		go func() { // ends at Hurry
			defer close(waited)
			w.Room(1)
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("Room did not wait")
		default:
		}
		w.Hurry()
		<-waited
		w.Close()
		close(to.opened)
		<-w.Done()
		if to.String() != "abc" || w.Err() != nil {
			t.Errorf("%q, %v", to.String(), w.Err())
		}
	})
}

// TestBroken: after a write that failed, what follows is discarded.
func TestBroken(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		to := &slow{opened: make(chan struct{}), err: broken}
		close(to.opened)
		w := asyncwriter.New(to, 0)
		w.Write([]byte("a"))
		synctest.Wait()
		w.Write([]byte("b"))
		w.Room(0)
		w.Close()
		<-w.Done()
		if to.String() != "a" || !errors.Is(w.Err(), broken) {
			t.Errorf("%q, %v", to.String(), w.Err())
		}
	})
}

// TestLimit: what would be more than the limit is discarded, but for a message that nothing waits with.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &slow{opened: make(chan struct{})}
		w := asyncwriter.New(to, 3)
		for _, message := range []string{"long", "ab", "cd", "e", "f"} {
			w.Write([]byte(message))
			synctest.Wait() // the first one is being written
		}
		w.Close()
		close(to.opened)
		<-w.Done()
		if to.String() != "longabe" {
			t.Errorf("%q", to.String())
		}
	})
}
