package cron_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/cron"
	"github.com/google/go-cmp/cmp"
)

// times is a schedule of fixed ticks.
type times []time.Time

func (s times) Next(t time.Time) time.Time {
	for _, tick := range s {
		if tick.After(t) {
			return tick
		}
	}
	return time.Time{}
}

// stubborn is a broken schedule: it does not advance.
type stubborn struct{}

func (stubborn) Next(t time.Time) time.Time { return t }

// due returns what Take returns, in seconds since zero.
func due(d *cron.Due, zero, now time.Time) (seconds []float64) {
	for _, tick := range d.Take(now) {
		seconds = append(seconds, tick.Sub(zero).Seconds())
	}
	return seconds
}

func TestDue(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  cron.Config
		asks []float64 // when Take is called, in seconds
		want [][]float64
	}{
		"on time":           {cron.Config{}, []float64{10, 20, 30}, [][]float64{{10}, {20}, {30}}},
		"asked twice":       {cron.Config{}, []float64{10, 10.001, 20}, [][]float64{{10}, nil, {20}}},
		"a little early":    {cron.Config{}, []float64{9.96, 10, 19.96}, [][]float64{{10}, nil, {20}}},
		"not yet":           {cron.Config{}, []float64{9.9, 10}, [][]float64{nil, {10}}},
		"a little late":     {cron.Config{}, []float64{12, 21}, [][]float64{{10}, {20}}},
		"stood still":       {cron.Config{}, []float64{10, 45}, [][]float64{{10}, {40}}},
		"makes up for two":  {cron.Config{CatchUp: 2}, []float64{0, 45}, [][]float64{{-10, 0}, {30, 40}}},
		"makes up for all":  {cron.Config{CatchUp: 99, Late: 25 * time.Second}, []float64{0, 100}, [][]float64{{-20, -10, 0}, {80, 90, 100}}},
		"the last one only": {cron.Config{CatchUp: 1}, []float64{1, 45}, [][]float64{{0}, {40}}},
		"too long ago":      {cron.Config{Late: time.Second}, []float64{15, 20}, [][]float64{nil, {20}}},
		"the clock is set back": {cron.Config{}, []float64{20, 12, 20, 30},
			[][]float64{{20}, nil, nil, {30}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zero := time.Now()
				in, _ := alone(c.cfg)
				d, err := in.job.Due(cron.Every(10 * time.Second))
				if err != nil {
					t.Fatal(err)
				}
				var got [][]float64
				for _, ask := range c.asks {
					got = append(got, due(d, zero, zero.Add(time.Duration(ask*float64(time.Second)))))
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("(-want +got)\n%s", d)
				}
			})
		})
	}
}

// A scheduler that slept for too long says which ticks it let pass.
func TestTicksThatArePastAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{})
		d, err := in.job.Due(cron.Every(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Take(time.Now().Add(90 * time.Minute)); len(got) > 0 || books.skipped[cron.ReasonTooLate] != 1 {
			t.Errorf("due %v, skipped %v", got, books.skipped)
		}
		if got := d.Take(time.Now().Add(100 * time.Minute)); len(got) > 0 || books.skipped[cron.ReasonTooLate] != 1 {
			t.Errorf("due %v, skipped %v", got, books.skipped)
		}
	})
}

func TestDueNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		in, _ := alone(cron.Config{})
		d, err := in.job.Due(cron.Every(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		d.Take(zero.Add(9960 * time.Millisecond))
		for ask, want := range map[float64]float64{9.97: 20, 10: 20, 25: 20} { // 20 came due unseen
			if got := cron.NextOf(d, zero.Add(time.Duration(ask*float64(time.Second)))).Sub(zero).Seconds(); got != want {
				t.Errorf("at %v: next is %v, want %v", ask, got, want)
			}
		}
	})
}

// A schedule in another zone is asked in the zone of the clock.
func TestDueKeepsTheZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		east := time.FixedZone("east", 3600)
		in, _ := alone(cron.Config{})
		var asked *time.Location
		d, err := in.job.Due(scheduleFunc(func(at time.Time) time.Time { asked = at.Location(); return time.Time{} }))
		if err != nil {
			t.Fatal(err)
		}
		d.Take(time.Now().In(east))
		if asked != east {
			t.Errorf("asked in %v", asked)
		}
	})
}

type scheduleFunc func(time.Time) time.Time

func (f scheduleFunc) Next(t time.Time) time.Time { return f(t) }

func TestSchedulesThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		for _, s := range []cron.Schedule{times{}, stubborn{}} {
			d, err := in.job.Due(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Take(time.Now()); len(got) > 0 {
				t.Errorf("due: %v", got)
			}
			if got := cron.NextOf(d, time.Now()); !got.IsZero() {
				t.Errorf("next: %v", got)
			}
		}
	})
}

func TestEveryNeedsADuration(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	cron.Every(0)
}

// A clock that was ahead stops no job: what it saw is yet to come.
func TestClockThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		in, _ := alone(cron.Config{})
		d, err := in.job.Due(cron.Every(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		d.Take(zero.Add(720 * time.Hour))
		d.Take(zero.Add(time.Second))
		if next := cron.NextOf(d, zero.Add(time.Second)).Sub(zero); next != 10*time.Second {
			t.Errorf("next is %v", next)
		}
		if ticks := d.Take(zero.Add(10 * time.Second)); len(ticks) != 1 {
			t.Errorf("took %v", ticks)
		}
	})
}
