package proc

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// record makes a call of the records.
func (c *child) record(ctx context.Context, q question) (a answer, err error) {
	engine, ok := c.engine.(driver.RecordKeeper)
	if !ok {
		return a, driver.ErrUnsupported
	}
	switch r := engine.Records(); q.Op {
	case opGet:
		a.Record, err = r.Get(ctx, q.Record.Key)
	case opSwap:
		a.Record.Version, err = r.Swap(ctx, q.Record.Key, q.Record.Value, q.Record.Version, q.TTL)
	case opRecords:
		a.Records, err = r.List(ctx, q.Name)
	case opClock:
		a.Clock[0], a.Clock[1], err = r.Clock(ctx)
	}
	return a, err
}

// Records returns the records of the engine in the child. Their methods return
// driver.ErrUnsupported if the engine is no driver.RecordKeeper.
func (p *Process) Records() driver.Records { return records{p} }

type records struct{ process *Process }

func (r records) Get(ctx context.Context, key string) (driver.Record, error) {
	a, err := r.process.do(ctx, question{Op: opGet, Record: driver.Record{Key: key}}, &call{})
	return a.Record, err
}

func (r records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	a, err := r.process.do(ctx, question{Op: opSwap, Record: driver.Record{Key: key, Value: value, Version: version}, TTL: ttl}, &call{})
	return a.Record.Version, err
}

func (r records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	a, err := r.process.do(ctx, question{Op: opRecords, Name: prefix}, &call{})
	return a.Records, err
}

func (r records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	a, err := r.process.do(ctx, question{Op: opClock}, &call{})
	return a.Clock[0], a.Clock[1], err
}
