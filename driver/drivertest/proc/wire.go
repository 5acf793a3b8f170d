package proc

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// What a parent may ask of its child.
const (
	opOpen    = "open"
	opClose   = "close"
	opAcquire = "acquire"
	opRenew   = "renew"
	opRelease = "release"
	opList    = "list"
	opBreak   = "break"
	opOne     = "break-owner"
	opResize  = "resize"
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

// A question is one message from parent to child. The callbacks of a request
// cannot travel; the child puts its own in their place.
type question struct {
	ID      int64
	Op      string
	Request wireRequest // of an opAcquire
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
	Ended   bool // the context of the call has ended already
	Panic   bool // with opHeard: the caller's Waiting panicked
}

// A wireRequest is a driver.Request with flags for the callbacks it has.
type wireRequest struct {
	driver.Request
	Lost    bool
	Waiting bool
}

// pack makes a request fit to travel.
func pack(r driver.Request) wireRequest {
	w := wireRequest{Request: r, Lost: r.OnLost != nil, Waiting: r.OnWait != nil}
	w.Request.OnLost, w.Request.OnWait = nil, nil
	return w
}

// What a child may tell.
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
	Has     []string // with Traits: which optional interfaces there are
	Grant   driver.Grant
	Info    driver.WaitInfo
	Why     wireError // Info.Trouble, which cannot travel
	List    []driver.Status
	Token   int64
	Record  driver.Record   // of an opGet and an opSwap
	Records []driver.Record // of an opRecords
	Clock   [2]time.Time
	Taken   driver.RateTaken
	Errs    []wireError // one, or one for each lease

	Panicked bool // the engine let a panic of Waiting through
}

// err returns the only error of an answer.
func (a answer) err() error {
	if len(a.Errs) == 0 {
		return nil
	}
	return a.Errs[0].err()
}

// sentinels are the errors that keep their identity on the way.
var sentinels = []error{
	driver.ErrHeld, driver.ErrLost, driver.ErrNotHeld, driver.ErrUnavailable, driver.ErrConfig, driver.ErrInvalid,
	driver.ErrUnsupported, driver.ErrConflict, context.Canceled, context.DeadlineExceeded,
}

// A wireError is an error with everything a test may ask of it. The zero one is
// no error: gob has no nil in lists.
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

// Unwrap makes errors.Is and errors.As answer as in the child.
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

// toWire packs an error.
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

// hand makes err the error of a call ended by the caller's own context, whose
// cause the child cannot know.
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
