package main

import (
	"context"
	"runtime"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// hooksSuite is what the public API and its hooks cost, on an engine that costs next to
// nothing.
var hooksSuite = suite{
	name:   "hooks",
	inside: true,
	title:  "The cost of hooks",
	notes: "Locks in memory, so that nothing hides the cost. `bare` is the engine without the library: no renewal, no context, no deadline. `fencelock`\n" +
		"has no tracer, `one hook` a tracer with AcquireEnd, and `all hooks` one with every hook. The hooks do nothing. Compare the differences\n" +
		"with the 300 us that a lock on Redis takes.\n",
	contestants: []contestant{
		{name: bare, open: openBareMemory},
		{name: ours, open: openHooked(nil)},
		{name: "one hook", open: openHooked(&fencelock.Tracer{AcquireEnd: func(context.Context, fencelock.TraceAcquireEnd) {}})},
		{name: "all hooks", open: openHooked(allHooks())},
	},
	measures: []measure{{"hooked", hooked}},
	per:      50_000,
	start:    func() (server, error) { return memory{}, nil },
}

// hooked measures acquire and release with nobody else there.
func hooked(a *arena, s settings) ([]row, error) {
	const pairs = 5000
	rounds, err := timed(a, s, or(s, a.per, pairs)/pairs, func(o opened) error { return loop(o, "hooked", pairs) }, pairs)
	return rounds.rows("acquire and release, uncontended"), err
}

// openHooked returns our library in memory, with a tracer.
func openHooked(tracer *fencelock.Tracer) func(*process) (client, error) {
	return func(*process) (client, error) {
		locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: tracer}).With(fencelock.Options{TTL: ttl})
		return ourClient{locks, func() {}}, nil
	}
}

func allHooks() *fencelock.Tracer {
	return &fencelock.Tracer{
		AcquireStart: func(ctx context.Context, _ fencelock.TraceAcquireStart) context.Context { return ctx },
		AcquireWait:  func(context.Context, fencelock.TraceAcquireWait) {},
		AcquireEnd:   func(context.Context, fencelock.TraceAcquireEnd) {},
		HoldStart:    func(ctx context.Context, _ fencelock.TraceLock) context.Context { return ctx },
		RenewStart:   func(ctx context.Context, _ fencelock.TraceRenewStart) context.Context { return ctx },
		RenewEnd:     func(context.Context, fencelock.TraceRenewEnd) {},
		HoldEnd:      func(context.Context, fencelock.TraceHoldEnd) {},
		ReleaseStart: func(ctx context.Context, _ fencelock.TraceLock) context.Context { return ctx },
		ReleaseEnd:   func(context.Context, fencelock.TraceReleaseEnd) {},
		Stale:        func(context.Context, fencelock.TraceStale) {},
	}
}

// bareMemory is the engine alone.
type bareMemory struct{ engine *memlock.Engine }

func openBareMemory(*process) (client, error) { return bareMemory{memlock.New(nil)}, nil }

func (c bareMemory) acquire(ctx context.Context, name string) (lock, error) {
	g, err := c.engine.Acquire(ctx, driver.Request{Name: name, TTL: ttl})
	return bareHold{c.engine, driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: ttl}}, err
}

func (bareMemory) close() {}

type bareHold struct {
	engine *memlock.Engine
	lease  driver.Lease
}

func (h bareHold) release() error { return h.engine.Release(context.Background(), h.lease) }
func (bareHold) err() error       { return nil }

// memory stands for the server of locks that need none.
type memory struct{}

func (memory) addr() string    { return "" }
func (memory) version() string { return runtime.Version() }
func (memory) stop()           {}
