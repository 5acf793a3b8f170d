package cron

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

// record is what the engine keeps of a job, in JSON. Whether a tick has been taken is told
// by the times of ticks alone, never by how late it is on some clock.
type record struct {
	Job    string    `json:"job"`
	Floor  time.Time `json:"floor"`         // no tick up to this one can be taken
	Ticks  ticks     `json:"ticks"`         // that have been taken, oldest first
	Next   time.Time `json:"next,omitzero"` // the tick after the newest of them, if that is known
	Last   *Run      `json:"last,omitempty"`
	Paused *Pause    `json:"paused,omitempty"`

	fresh bool // it is not stored yet
}

// taken is a tick that somebody has taken. If first is before tick it stands for a span:
// ticks that have been taken lie in it, and none in it can be taken any more.
type taken struct {
	first, tick time.Time
	by          string // the id of the claim of tick, which has no space
}

// ticks is stored as one text, with the nanosecond since 1970 and the id of each, and for a span
// both nanoseconds: records are written and read several times for each run.
type ticks []taken

// MarshalText is for package json.
func (t ticks) MarshalText() ([]byte, error) {
	var b []byte
	for _, one := range t {
		if one.first.Before(one.tick) {
			b = append(strconv.AppendInt(b, one.first.UnixNano(), 10), spanMark...)
		}
		b = strconv.AppendInt(b, one.tick.UnixNano(), 10)
		b = append(append(append(b, ' '), one.by...), ' ')
	}
	return b, nil
}

// UnmarshalText is for package json.
func (t *ticks) UnmarshalText(text []byte) error {
	words := strings.Fields(string(text))
	if len(words)%2 != 0 {
		return errors.New("a tick without an id")
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
		*t = append(*t, taken{time.Unix(0, from).UTC(), time.Unix(0, to).UTC(), words[i+1]})
	}
	return nil
}

const spanMark = ".." // between the two ends of a span

// State is how far a run has come.
type State string

// The states.
const (
	StateRunning State = "running"
	StateOK      State = "ok"
	StateFailed  State = "failed"
	StateLost    State = "lost" // it holds the job no more, and has told no outcome: its process died, or the engine was away
)

// Run is one run of a job, on any instance. It has JSON tags.
type Run struct {
	Tick    time.Time `json:"tick,omitzero"` // zero in the Status of a run by Job.Now
	State   State     `json:"state"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Token   int64     `json:"token"` // the fencing token
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`  // zero if it runs, or is lost
	Error   string    `json:"error,omitempty"` // if it failed; up to 1 KiB
}

// Pause says who paused a job, and why.
type Pause struct {
	Reason string    `json:"reason"`
	Host   string    `json:"host"`
	Since  time.Time `json:"since"`
}

// remembered is how many ticks a record remembers one by one. Instances may take ticks in
// any order within the newest so many.
const remembered = 100

// lastYear is the last one whose times JSON can tell.
const lastYear = 9999

// taker returns whose the tick is, as far as the record remembers; free if nobody has
// taken it.
func (r *record) taker(tick time.Time) (by string, free bool) {
	for _, t := range r.Ticks {
		switch {
		case t.tick.Equal(tick):
			return t.by, false
		case !tick.Before(t.first) && tick.Before(t.tick):
			return "", false
		}
	}
	return "", tick.After(r.Floor)
}

// take notes that a tick is taken, which must be free. No tick that was taken is ever forgotten
// altogether. What is forgotten for this one lies below the floor then. But a floor that is yet to
// come by the engine's clock could end the job until that time, and either that clock is
// behind or that of a host was ahead: so ticks that are yet to come are joined.
func (r *record) take(tick time.Time, by string, next, now time.Time) {
	if n := len(r.Ticks); n == 0 || tick.After(r.Ticks[n-1].tick) {
		r.Next = next
		if next.Year() > lastYear {
			r.Next = time.Time{}
		}
	}
	r.Ticks = append(r.Ticks, taken{tick, tick, by})
	slices.SortFunc(r.Ticks, func(a, b taken) int { return a.tick.Compare(b.tick) })
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

// join makes one of the two that are closest to one another, the oldest such two. So ticks of a
// clock that is far ahead are joined with their like, and what comes due before them stays free.
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

// encode returns what is stored.
func (r *record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // texts, numbers and times of this millennium always marshal
	}
	return b
}

// decode reads what was stored under a key.
func decode(rec fencelock.Record) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(rec.Value, r); err != nil || recordPrefix+r.Job != rec.Key {
		return nil, fmt.Errorf("%w: the record %q is not that of a job: %w", fencelock.ErrConfig, rec.Key, cmp.Or(err, errNoJob))
	}
	return r, nil
}

var errNoJob = errors.New("it does not name that job")

// book is the place of one job's record.
type book struct {
	records fencelock.Records
	job     string
	past    time.Duration // how long ago a tick may be that is to be taken
}

const (
	recordPrefix  = "cron/"                  // begins the keys of records
	recordTTL     = 2 * 365 * 24 * time.Hour // after the last change, unless the job is paused
	firstConflict = time.Millisecond         // the pause after somebody else was faster
	lastConflict  = 100 * time.Millisecond
)

// read returns the record and its version; nil and "" if there is none.
func (b book) read(ctx context.Context) (*record, string, error) {
	rec, err := b.records.Get(ctx, recordPrefix+b.job)
	if err != nil || rec.Version == "" {
		return nil, "", err
	}
	r, err := decode(rec)
	return r, rec.Version, err
}

// change has f change the record and stores it; again, if somebody else was faster. f is
// told the time by the engine's clock. Its error ends the change, errUnchanged without an
// error. After an ErrUnavailable nobody knows whether the record has changed.
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
			begin, _ := order(now) // the later one could end the job until that time
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
			ttl = 0 // nothing but Resume ends a pause
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

// errUnchanged says that a record need not change.
var errUnchanged = errors.New("the record need not change")

// order returns the earlier and the later of the engine's clock and of this host's: one of
// them may be far ahead, or behind.
func order(now time.Time) (earlier, later time.Time) {
	here := time.Now().Round(0).UTC()
	if here.Before(now) {
		return here, now
	}
	return now, here
}
