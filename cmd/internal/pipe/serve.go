//go:build unix

package pipe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/asyncwriter"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/ratelimit"
)

// patience is the timeout of a question to the engine.
const patience = 5 * time.Second

// Config is what Serve needs.
type Config struct {
	Engine  driver.Engine
	Version string // of this program
	In      io.Reader
	Out     io.Writer
	Parent  <-chan struct{}                       // closed when the program has ended
	Guard   *Guard                                // nil unless locks are file descriptors
	Redact  func(string) string                   // removes passwords from errors
	Status  func(driver.Status) any               // the JSON form of a status
	Rate    func(string) (ratelimit.Limit, error) // parses a rate
	Rates   func() (driver.RateLimiter, error)    // of the engine, always the same
}

// server serves one program.
type server struct {
	Config
	locks *fencelock.Locker
	out   *asyncwriter.Writer
	busy  sync.WaitGroup // goroutines of claims and questions

	mu     sync.Mutex // guards the fields below and the fields of claims
	claims map[int64]*claim
	at     *float64 // the newest clock of the program
	ending bool
}

// Serve answers the requests of a program, until its input ends or the program has ended. It then
// releases all locks and returns. A goroutine that reads from In may stay until In ends.
func Serve(ctx context.Context, c Config) {
	s := &server{Config: c, locks: fencelock.New(c.Engine, nil), out: asyncwriter.New(c.Out, 0), claims: map[int64]*claim{}}
	traits := c.Engine.Traits()
	s.put(response{Hello: &hello{Protocol, c.Version, traits.Engine, traits.Leased, os.Getpid()}})
	ended := make(chan struct{})
	go func() { // ends with the input
		defer close(ended)
		s.read(ctx)
	}()
	select {
	case <-ended:
	case <-c.Parent: // a process that the program has forked may still have the other end of the pipe
	case <-ctx.Done():
	}
	s.end()
}

// read serves each line of the input.
func (s *server) read(ctx context.Context) {
	in := bufio.NewReaderSize(s.In, maxLine+1)
	for n := 1; ; n++ {
		s.out.Room(maxUnread)
		line, err := readLine(in)
		if errors.Is(err, errTooLong) {
			s.refuse(0, classInvalid, fmt.Sprintf("line %d: %v", n, err))
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.serve(ctx, n, line)
		}
		if err != nil {
			return
		}
	}
}

// refuse answers a request that does nothing. The id is left out if it is that of a claim, which continues.
func (s *server) refuse(id int64, class, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[id] != nil {
		id = 0
	}
	s.put(response{ID: id, Err: &failure{Class: class, Text: text}})
}

// serve handles one request. It does not wait for the engine.
func (s *server) serve(ctx context.Context, n int, line []byte) {
	var q request
	if err := json.Unmarshal(line, &q); err != nil {
		s.refuse(q.ID, classInvalid, fmt.Sprintf("line %d: %v", n, err))
		return
	}
	if q.At != nil {
		s.mu.Lock()
		s.at = q.At
		s.mu.Unlock()
	}
	switch q.Op {
	case "beat":
		s.beat()
	case "acquire", "elect":
		s.start(ctx, q)
	case "release", "cancel":
		s.release(q.ID)
	case "check":
		s.check(q.ID)
	case "status", "take":
		s.mu.Lock()
		if !s.ending {
			s.busy.Go(func() { s.answer(ctx, q) })
		}
		s.mu.Unlock()
	default:
		s.refuse(q.ID, classUnsupported, fmt.Sprintf("line %d: no such op: %q", n, q.Op))
	}
}

// beat answers a sign of life with the deadlines that have moved.
func (s *server) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := map[int64]int64{}
	now := time.Now()
	for id, c := range s.claims {
		if l, ok := c.report(now, minMove); ok && l.LeftMS != nil {
			moved[id] = *l.LeftMS
		}
	}
	s.put(response{At: s.at, Left: moved})
}

// check answers whether a lock is held now, and for how long the program may believe that.
func (s *server) check(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := new(check)
	if c := s.claims[id]; c != nil {
		k.remaining, k.Held = c.report(time.Now(), 0)
	}
	s.put(response{ID: id, At: s.at, Check: k})
}

// answer answers a question that is not about a lock of the program.
func (s *server) answer(ctx context.Context, q request) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := response{ID: q.ID}
	var err error
	if q.Op == "take" {
		t.Take, err = s.take(ctx, q)
	} else {
		var status driver.Status
		if status, err = s.locks.Status(ctx, q.Name); err == nil {
			t.Stat = s.Status(status)
		}
	}
	if err != nil {
		t.Err = failureOf(err, s.Redact)
	}
	s.put(t)
}

// take takes events of a rate, if they are available now.
func (s *server) take(ctx context.Context, q request) (*takeResult, error) {
	limit, err := s.Rate(q.Rate)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	rates, err := s.Rates()
	if err != nil {
		return nil, err
	}
	limit.Burst = max(q.Burst, 1)
	r, err := ratelimit.New(rates, q.Name, limit, &ratelimit.Config{Timeout: patience}).AllowN(ctx, "", max(q.Count, 1))
	if limited, ok := errors.AsType[*ratelimit.LimitedError](err); ok {
		r, err = ratelimit.Result{RetryAfter: limited.RetryAfter}, nil
	}
	return &takeResult{OK: r.OK, Remaining: r.Remaining, RetryMS: (r.RetryAfter.Microseconds() + 999) / 1000}, err
}

// end releases everything and returns when that is done. Each release has a timeout.
func (s *server) end() {
	s.mu.Lock()
	s.ending = true
	for _, c := range s.claims {
		c.drop()
	}
	s.mu.Unlock()
	s.busy.Wait()
	s.out.Flush(time.Second) // a program that is gone or frozen must not keep this process
}
