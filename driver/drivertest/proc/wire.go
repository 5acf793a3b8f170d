package proc

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// The operations that a parent requests of its child.
const (
	opOpen    = "open"
	opClose   = "close"
	opAcquire = "acquire"
	opRenew   = "renew"
	opRelease = "release"
	opList    = "list"
	opBreak   = "break"
	opOne     = "break-owner"
	opAdopt   = "adopt"
	opDetach  = "detach"
	opResize  = "resize"
	opShut    = "shut" // closes the engine, as a program does; opClose is for the end of its test
	opGet     = "get"
	opSwap    = "swap"
	opRecords = "records"
	opClock   = "clock"
	opTake    = "take"
	opReturn  = "return"
	opReset   = "reset"
	opCancel  = "cancel" // ends the call of the same ID
	opHeard   = "heard"  // answers a kindWaiting of the same ID
)

// A question is one message from parent to child. The callbacks of a request cannot be sent; the
// child substitutes its own.
type question struct {
	ID      int64
	Op      string
	Request wireRequest // of an opAcquire and an opAdopt
	Leases  []driver.Lease
	Query   driver.Query
	Name    string // of a lock, or the kind of engine of an opOpen
	Arg     string // of an opOpen
	Reason  string
	Owner   string
	Limit   int
	Record  driver.Record // of an opGet (the key) and an opSwap
	TTL     time.Duration // of an opSwap
	Take    driver.RateTake
	Taken   driver.RateTaken
	Ended   bool // the context of the call has already ended
	Panic   bool // with opHeard: the caller's OnWait panicked
}

// A wireRequest is a driver.Request with flags for its callbacks.
type wireRequest struct {
	driver.Request
	Lost    bool
	Waiting bool
}

// pack converts a request for sending.
func pack(r driver.Request) wireRequest {
	w := wireRequest{Request: r, Lost: r.OnLost != nil, Waiting: r.OnWait != nil}
	w.Request.OnLost, w.Request.OnWait = nil, nil
	return w
}

// The kinds of messages from a child.
const (
	kindAnswer  = "answer"
	kindWaiting = "waiting"
	kindLost    = "lost"
)

// An answer is one message from child to parent.
type answer struct {
	ID      int64
	Kind    string
	Traits  driver.Traits
	Has     []string // with Traits: the optional interfaces
	Grant   driver.Grant
	Info    driver.WaitInfo
	Why     wireError // Info.Trouble, which cannot be sent
	List    []driver.Status
	Token   int64
	Record  driver.Record   // of an opGet and an opSwap
	Records []driver.Record // of an opRecords
	Clock   [2]time.Time
	Taken   driver.RateTaken
	Errs    []wireError // one error, or one for each lease

	Panicked bool // the engine did not recover a panic of OnWait
}

// err returns the only error of an answer.
func (a answer) err() error {
	if len(a.Errs) == 0 {
		return nil
	}
	return a.Errs[0].err()
}

// sentinels are the errors that keep their identity.
var sentinels = []error{
	driver.ErrHeld, driver.ErrLost, driver.ErrNotHeld, driver.ErrUnavailable, driver.ErrConfig, driver.ErrInvalid,
	driver.ErrUnsupported, driver.ErrConflict, driver.ErrBroken, context.Canceled, context.DeadlineExceeded,
}

// A wireError is an error with everything that a test may check. The zero value means no error,
// because gob has no nil in slices.
type wireError struct {
	Failed bool
	Text   string
	Kinds  []int // indexes of sentinels
	Held   *driver.HeldError
}

func (e *wireError) Error() string { return e.Text }

func (e *wireError) err() error {
	if !e.Failed {
		return nil
	}
	return e
}

// Unwrap makes errors.Is and errors.As behave as in the child.
func (e *wireError) Unwrap() []error {
	var all []error
	if e.Held != nil {
		all = append(all, e.Held)
	}
	for _, i := range e.Kinds {
		all = append(all, sentinels[i])
	}
	return all
}

// toWire converts an error for sending.
func toWire(err error) wireError {
	if err == nil {
		return wireError{}
	}
	w := wireError{Failed: true, Text: err.Error()}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			w.Kinds = append(w.Kinds, i)
		}
	}
	w.Held, _ = errors.AsType[*driver.HeldError](err)
	return w
}

// hand adapts an error caused by the caller's own context, whose cause the child does not know.
func hand(ctx context.Context, err error) error {
	w, ok := errors.AsType[*wireError](err)
	if !ok || ctx.Err() == nil {
		return err
	}
	own := *w
	own.Kinds = slices.Clone(w.Kinds)
	for i, kind := range own.Kinds {
		if errors.Is(sentinels[kind], context.Canceled) {
			own.Kinds[i] = slices.Index(sentinels, ctx.Err())
		}
	}
	return &own
}
