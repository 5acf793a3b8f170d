package cron

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

// record is what the engine stores for a job, as JSON. Whether a tick was claimed depends only on
// the times of ticks, never on how late it is by some clock.
type record struct {
	Job    string    `json:"job"`
	Floor  time.Time `json:"floor"`         // ticks up to this one cannot be claimed
	Ticks  ticks     `json:"ticks"`         // claimed ticks, oldest first
	Next   time.Time `json:"next,omitzero"` // the tick after the newest one; zero if unknown
	Last   *Run      `json:"last,omitempty"`
	Paused *Pause    `json:"paused,omitempty"`

	fresh bool // whether the record is not stored yet
}

// taken is a claimed tick. If first is before tick, it is a span: it contains claimed ticks, and
// none of the ticks in it, except perhaps tick itself, can be claimed any more.
type taken struct {
	first, tick time.Time
	by          string // the id of the claim of tick; has no spaces
	attempt     int64  // if not 0, tick is not claimed: a run under the lock with this token is about to start
}

// ticks is stored as one text: for each tick the nanoseconds since 1970 and the id, and for a span
// both nanoseconds. An attempt has a mark and its token in place of the id. The text is compact
// because records are written and read several times per run.
type ticks []taken

// MarshalText implements encoding.TextMarshaler.
func (t ticks) MarshalText() ([]byte, error) {
	var b []byte
	for _, one := range t {
		if one.first.Before(one.tick) {
			b = append(strconv.AppendInt(b, one.first.UnixNano(), 10), spanMark...)
		}
		b = strconv.AppendInt(b, one.tick.UnixNano(), 10)
		b = append(b, ' ')
		if one.attempt != 0 {
			b = strconv.AppendInt(append(b, attemptMark...), one.attempt, 10)
		}
		b = append(append(b, one.by...), ' ')
	}
	return b, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *ticks) UnmarshalText(text []byte) error {
	words := strings.Fields(string(text))
	if len(words)%2 != 0 {
		return errors.New("the list of ticks has a tick without an id")
	}
	for i := 0; i < len(words); i += 2 {
		first, tick, span := strings.Cut(words[i], spanMark)
		if !span {
			tick = first
		}
		from, bad := strconv.ParseInt(first, 10, 64)
		to, err := strconv.ParseInt(tick, 10, 64)
		if err = cmp.Or(bad, err); err != nil {
			return err
		}
		one := taken{first: time.Unix(0, from).UTC(), tick: time.Unix(0, to).UTC(), by: words[i+1]}
		if token, marked := strings.CutPrefix(one.by, attemptMark); marked {
			if one.attempt, err = strconv.ParseInt(token, 10, 64); err != nil {
				return err
			}
			one.by = ""
		}
		*t = append(*t, one)
	}
	return nil
}

const (
	spanMark    = ".." // separates the two ends of a span
	attemptMark = "?"  // before the token of an attempt
)

// State is the state of a run.
type State string

// The states.
const (
	// StateStarting: a command holds the lock of the job and is about to start its work.
	StateStarting State = "starting"
	// StateUnstarted: the attempt ended before the work started. The tick is left to the next
	// caller.
	StateUnstarted State = "unstarted"

	StateRunning State = "running"
	StateOK      State = "ok"
	StateFailed  State = "failed"
	// StateLost: the run does not hold the lock of the job any more and reported no outcome. Its
	// process died, or the engine was unreachable.
	StateLost State = "lost"
)

// Run is one run of a job, on any instance. It has JSON tags.
type Run struct {
	Tick    time.Time `json:"tick,omitzero"` // zero in the Status of a run by Job.Now
	State   State     `json:"state"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Token   int64     `json:"token"` // the fencing token
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`  // zero while it runs, and if it is lost
	Error   string    `json:"error,omitempty"` // the error of a failed run; at most 1 KiB
}

// Pause says who paused a job, when and why.
type Pause struct {
	Reason string    `json:"reason"`
	Host   string    `json:"host"`
	Since  time.Time `json:"since"`
}

// remembered is how many ticks a record lists one by one. Among the newest so many, instances may
// claim ticks in any order.
const remembered = 100

// lastYear is the last year that JSON can represent.
const lastYear = 9999

// taker returns the id of the claim that has the tick, if the record still has it. free is true if
// the tick can be claimed.
func (r *record) taker(tick time.Time) (by string, free bool) {
	for _, t := range r.Ticks {
		switch {
		case t.tick.Equal(tick):
			return t.by, t.attempt != 0
		case !tick.Before(t.first) && tick.Before(t.tick):
			return "", false
		}
	}
	return "", tick.After(r.Floor)
}

// attempt returns the token of the attempt at the tick, or 0.
func (r *record) attempt(tick time.Time) int64 {
	for _, t := range r.Ticks {
		if t.tick.Equal(tick) {
			return t.attempt
		}
	}
	return 0
}

// take adds a claim, or an attempt at one. It replaces an entry for the same tick.
//
// The record never forgets a claimed tick completely. If the list is too long, the oldest tick is
// removed and Floor is set to it, so that no tick up to it can be claimed. Floor must not be in the
// future by the engine's clock, because it would stop the job until that time: the engine's clock
// may be behind, or that of a host was ahead. Ticks in the future are therefore joined to spans
// instead.
func (r *record) take(one taken, next, now time.Time) {
	if n := len(r.Ticks); n == 0 || !one.tick.Before(r.Ticks[n-1].tick) {
		r.Next = next
		if next.Year() > lastYear {
			r.Next = time.Time{}
		}
	}
	one.first = one.tick
	r.Ticks = slices.DeleteFunc(r.Ticks, func(old taken) bool {
		if !old.tick.Equal(one.tick) {
			return false
		}
		one.first = old.first // the other ticks of a span stay claimed
		return true
	})
	r.Ticks = append(r.Ticks, one)
	sort.SliceStable(r.Ticks, func(i, j int) bool { return r.Ticks[i].tick.Before(r.Ticks[j].tick) })
	for len(r.Ticks) > remembered {
		oldest := r.Ticks[0].tick
		if oldest.After(now) {
			r.Ticks = r.Ticks.join()
			continue
		}
		if oldest.After(r.Floor) {
			r.Floor = oldest
		}
		r.Ticks = r.Ticks[1:]
	}
}

// join merges the two neighbouring entries with the smallest gap, the oldest such pair. So ticks of
// a clock that is far ahead are merged with each other, and ticks before them stay free.
func (t ticks) join() ticks {
	gap := func(i int) time.Duration { return t[i].first.Sub(t[i-1].tick) }
	best := 1
	for i := range t[1:] {
		if gap(i+1) < gap(best) {
			best = i + 1
		}
	}
	t[best].first = t[best-1].first
	return slices.Delete(t, best-1, best)
}

// encode returns the stored form.
func (r *record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, numbers and times of this millennium always marshal
	}
	return b
}

// decode reads a stored record and checks that it belongs to its key.
func decode(rec fencelock.Record) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(rec.Value, r); err != nil || recordPrefix+r.Job != rec.Key {
		return nil, fmt.Errorf("%w: the record %q is not the record of a job: %w", fencelock.ErrConfig, rec.Key, cmp.Or(err, errNoJob))
	}
	return r, nil
}

var errNoJob = errors.New("it names another job")

// book reads and writes the record of one job.
type book struct {
	records fencelock.Records
	job     string
	past    time.Duration // how old a tick may be that is to be claimed
}

const (
	recordPrefix  = "cron/"                  // prefix of the keys of records
	recordTTL     = 2 * 365 * 24 * time.Hour // after the last change, unless the job is paused
	firstConflict = time.Millisecond         // the first pause after a conflict with another writer
	lastConflict  = 100 * time.Millisecond
)

// read returns the record and its version, or nil and "" if there is none.
func (b book) read(ctx context.Context) (*record, string, error) {
	rec, err := b.records.Get(ctx, recordPrefix+b.job)
	if err != nil || rec.Version == "" {
		return nil, "", err
	}
	r, err := decode(rec)
	return r, rec.Version, err
}

// change applies f to the record and stores it. It retries after a conflict with another writer. f
// gets the time of the engine's clock. An error of f ends the change; errUnchanged ends it without
// an error. After ErrUnavailable the record may or may not have changed.
func (b book) change(ctx context.Context, f func(r *record, now time.Time) error) error {
	for pause := retry.NewBackoff(firstConflict, lastConflict); ; {
		r, version, err := b.read(ctx)
		if err != nil {
			return err
		}
		_, now, err := b.records.Clock(ctx)
		if err != nil {
			return err
		}
		now = now.UTC()
		if r == nil {
			begin, _ := order(now) // the later clock could stop the job until that time
			r = &record{Job: b.job, Floor: begin.Add(-b.past), fresh: true}
		}
		if err := f(r, now); err != nil {
			if errors.Is(err, errUnchanged) {
				return nil
			}
			return err
		}
		ttl := recordTTL
		if r.Paused != nil {
			ttl = 0 // only Resume ends a pause
		}
		_, err = b.records.Swap(ctx, recordPrefix+b.job, r.encode(), version, ttl)
		if !errors.Is(err, fencelock.ErrConflict) {
			return err
		}
		if !pause.Wait(ctx) {
			return fmt.Errorf("the record of %q: %w", b.job, ctx.Err())
		}
	}
}

// errUnchanged means that a record need not be changed.
var errUnchanged = errors.New("the record need not change")

// order returns the earlier and the later of now, from the engine's clock, and the clock of this
// host. Either may be wrong.
func order(now time.Time) (earlier, later time.Time) {
	here := time.Now().Round(0).UTC()
	if here.Before(now) {
		return here, now
	}
	return now, here
}
