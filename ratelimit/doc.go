// Package ratelimit limits how often something happens, over all processes: a hundred requests per
// second to a partner, or three mails per hour to each user.
//
//	limiter := ratelimit.New(engine, "mails", ratelimit.PerHour(3), nil)
//
//	result, err := limiter.Allow(ctx, "user:42")
//	switch {
//	case err != nil: // not decided: the engine is unreachable, or ctx has ended
//	case !result.OK: // over the limit: retry after result.RetryAfter
//	default: // send the mail
//	}
//
// Use [Limiter.Allow] to refuse work over the limit, and [Limiter.Wait] to slow it down. [Handler]
// is middleware for net/http.
//
// The methods are like those of golang.org/x/time/rate, with a key as an argument.
// [Limiter.Reserve] returns how long to wait. AllowN, WaitN and ReserveN are for several events at
// once, all or none. [Limiter.AllowAtMost] takes as many of several events as are available.
// [Limiter.Peek] takes none. [Limiter.Reset] gives a key its whole burst again.
//
// # Guarantees
//
// In any period t, at most Burst plus rate × t events of a key are granted, to all processes
// together. t is measured by the engine's clock; the clocks of the processes play no role. If the
// processes always ask for more, they get at least the rate, except for events of reservations that
// are cancelled late or lost with their process.
//
// The interval between two events is rounded up to a whole microsecond. A rate that would lose more
// than one percent by this is fencelock.ErrInvalid.
//
// An engine that loses its data grants a new burst for each key. So does an engine whose clock is
// set forward. If the clock is set back, the limit continues from the new time. The pages of the
// engines have the details.
//
// # Keys
//
// A key may be any text, also one chosen by a user: the keys of different limiters are independent.
// An unused key costs nothing. The engine deletes a key when its whole burst is available again, so
// there may be millions of them.
//
// The engine stores a time per key and no count. A changed Limit therefore applies from the next
// call, for all processes that use it. Events that were granted earlier keep the time that they
// took at the old rate: a key that has used three events per hour stays empty for up to an hour,
// even if the new rate is much higher.
//
// # When the engine is down
//
// Config.Down says what happens while the engine is unreachable: nothing is granted (the default;
// an error is returned), everything is granted, or each process grants a share that it counts in
// its own memory. Result.Err then says why the engine did not decide.
//
// # What it is not
//
// It does not limit how many holders work at the same time: use package semaphore. A grant is meant
// for now: if the process is paused after a grant, or its messages are delayed, the event happens
// later. Redlock has no rates, since a majority of servers cannot count; using it here does not
// compile.
package ratelimit
