package schedule_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/schedule"
)

// A mutant is a Schedule of which one line is undone after, or before, each call.
type mutant struct {
	schedule.Schedule[int]
	set   func(m *mutant, before schedule.Inner, e *schedule.Entry[int], at time.Duration, a schedule.Alarm) schedule.Alarm
	close func(m *mutant, e *schedule.Entry[int])
	due   func(m *mutant, before schedule.Inner, due []int, a schedule.Alarm) ([]int, schedule.Alarm)
	ahead func(m *mutant, now hold.Instant) hold.Instant
}

func (m *mutant) Set(e *schedule.Entry[int], at, now time.Duration) schedule.Alarm {
	before := m.Inner()
	a := m.Schedule.Set(e, at, now)
	if m.set != nil {
		a = m.set(m, before, e, at, a)
	}
	return a
}

func (m *mutant) Close(e *schedule.Entry[int]) {
	if m.close != nil {
		m.close(m, e)
		return
	}
	m.Schedule.Close(e)
}

func (m *mutant) Due(now hold.Instant) ([]int, schedule.Alarm) {
	if m.ahead != nil {
		now = m.ahead(m, now)
	}
	before := m.Inner()
	due, a := m.Schedule.Due(now)
	if m.due != nil {
		due, a = m.due(m, before, due, a)
	}
	return due, a
}

// spoil changes one thing that a mutant remembers.
func (m *mutant) spoil(change func(*schedule.Inner)) {
	in := m.Inner()
	change(&in)
	m.Spoil(in)
}

func TestMutantsOfTheScheduleAreFound(t *testing.T) {
	for what, broken := range map[string]mutant{
		"a timer that fired when nothing was queued counts as running": {
			due: func(m *mutant, before schedule.Inner, due []int, a schedule.Alarm) ([]int, schedule.Alarm) {
				if a.Do == schedule.Leave && len(due) == 0 {
					m.spoil(func(in *schedule.Inner) { in.Armed, in.Fires = before.Armed, before.Fires })
				}
				return due, a
			},
		},
		"who took locks is not known to be awake, and sets no timer at the end": {
			due: func(m *mutant, before schedule.Inner, due []int, a schedule.Alarm) ([]int, schedule.Alarm) {
				if before.Awake && len(due) == 0 {
					m.spoil(func(in *schedule.Inner) { in.Armed, in.Fires = before.Armed, before.Fires })
					a = schedule.Alarm{}
				}
				return due, a
			},
		},
		"who found nothing counts as awake": {
			due: func(m *mutant, _ schedule.Inner, due []int, a schedule.Alarm) ([]int, schedule.Alarm) {
				m.spoil(func(in *schedule.Inner) { in.Awake = true })
				return due, a
			},
		},
		"a timer is set and not noted": {
			set: func(m *mutant, before schedule.Inner, _ *schedule.Entry[int], _ time.Duration, a schedule.Alarm) schedule.Alarm {
				m.spoil(func(in *schedule.Inner) { in.Armed, in.Fires = before.Armed, before.Fires })
				return a
			},
		},
		"a lock that comes first does not move the timer": {
			set: func(m *mutant, before schedule.Inner, _ *schedule.Entry[int], _ time.Duration, a schedule.Alarm) schedule.Alarm {
				if a.Do == schedule.Move {
					m.spoil(func(in *schedule.Inner) { in.Fires = before.Fires })
					a = schedule.Alarm{}
				}
				return a
			},
		},
		"the first lock starts no timer": {
			set: func(m *mutant, _ schedule.Inner, _ *schedule.Entry[int], _ time.Duration, a schedule.Alarm) schedule.Alarm {
				if a.Do == schedule.Start {
					a = schedule.Alarm{}
				}
				return a
			},
		},
		"a timer sleeps until the first lock is due, however long": {
			set: func(m *mutant, _ schedule.Inner, _ *schedule.Entry[int], at time.Duration, a schedule.Alarm) schedule.Alarm {
				if a.Do == schedule.Start {
					m.spoil(func(in *schedule.Inner) { in.Fires = at })
					a.At = at
				}
				return a
			},
		},
		"a jump goes unnoticed": {
			ahead: func(m *mutant, now hold.Instant) hold.Instant {
				m.spoil(func(in *schedule.Inner) { in.Last = now })
				return now
			},
		},
		"a released lock is queued again": {
			close: func(m *mutant, e *schedule.Entry[int]) {
				m.Schedule.Close(e)
				e.Reopen()
			},
		},
		"a released lock stays queued": {
			close: func(*mutant, *schedule.Entry[int]) {},
		},
		"a lock that is due is overlooked": {
			ahead: func(_ *mutant, now hold.Instant) hold.Instant {
				now.Mono -= schedule.MinSleep
				return now
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			_, path, wrong := explore(func() subject { m := broken; return &m }, 8)
			if wrong == "" {
				t.Fatal("the test does not find it")
			}
			t.Logf("after %v: %s", path, wrong)
		})
	}
}
