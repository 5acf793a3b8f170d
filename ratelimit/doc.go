// Package ratelimit bounds how often something happens, among many processes: a hundred
// requests a second to a partner, three mails an hour to each user.
//
//	limiter := ratelimit.New(engine, "mails", ratelimit.PerHour(3), nil)
//
//	result, err := limiter.Allow(ctx, "user:42")
//	switch {
//	case err != nil: // nobody knows: the engine is down
//	case !result.OK: // too many: again after result.RetryAfter
//	default: // send it
//	}
//
// Its methods are those of golang.org/x/time/rate, for a key each: [Limiter.Allow] asks
// and goes on, [Limiter.Wait] waits for its turn, [Limiter.Reserve] says how long that
// would take, and AllowN, WaitN and ReserveN are for several events at once, all or none.
// [Limiter.AllowAtMost] takes as many of several as there are, [Limiter.Peek] takes none and
// says how many there are, and [Limiter.Reset] gives a key its burst again. Most
// programs should use Allow to refuse work, and Wait to slow it down. [Handler] is the
// middleware for net/http.
//
// # What it promises
//
// In any time t no more events of a key are granted than Burst and what the rate gives in
// t, by all processes together. The clock is the engine's, so theirs may differ by as much
// as they like; t is by that clock too. If they always ask they get no less than the rate,
// but for the events of reservations that somebody cancels too late, or that are lost with
// their process. Between two events lie whole microseconds, rounded up: a rate that would
// lose more than one percent by that is fencelock.ErrInvalid.
//
// An engine that loses its data grants a burst anew, for each key. So does one whose clock is
// set forward; one whose clock is set back goes on as if nothing had been. What that
// means on each engine is on its page.
//
// # Keys
//
// A key may be whatever somebody chooses: none of one limiter is a key of another one. It
// costs nothing until it is used, and nothing once it has not been used for as long as its
// burst takes to come back: the engine forgets it then. There may be millions of them. What
// is stored is a time and no count, so another Limit for the same keys applies from the next
// call, for whoever uses it. Events that were granted before keep the time that they
// took at the old rate: a key that had used three an hour stays empty for up to an hour,
// however fast the new rate is.
//
// # When the engine is down
//
// Config.Down says what happens: nothing is granted (the default, and an error says so),
// everything, or a share for each process, counted in its own memory. Result.Err says
// why it was not the engine that decided.
//
// # What it is not
//
// It does not bound how many work at the same time: that is package semaphore. A grant is
// for now: a process that is frozen between the grant and the event, or whose messages are
// held up on their way, does what it was granted later. And redlock has no rates, since a
// majority of servers cannot count: it does not compile here.
package ratelimit
