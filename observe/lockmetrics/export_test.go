package lockmetrics

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
)

const (
	Other      = other
	MaxClasses = maxClasses
	KindRate   = kindRate
)

var Decision = decision

// Table is a table whose series are their labels.
type Table struct{ *table[labels] }

func NewTable() Table {
	return Table{newTable(nil, func(l labels) *labels { return &l })}
}

// Of returns a series and its class.
func (t Table) Of(mode, kind, name string) (series any, class string) {
	l := t.of("memory", mode, kind, name)
	return l, l.class
}

func (t Table) Len() int { return len(t.all()) }

// Holds are the holds of one series.
type Holds struct{ series lockSeries }

func (h *Holds) State() (n int, oldest time.Duration) { return h.series.holds.state() }

func (h *Holds) Begin(ctx context.Context, lock fencelock.TraceLock) *Holding {
	return nobody.begin(ctx, lock, &h.series)
}

type Holding = holding

func (h *holding) End() { h.end() }

var (
	nobody      *Recorder // whose holds have no series
	HoldingFrom = nobody.holdingFrom
)
