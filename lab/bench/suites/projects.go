package main

// Reasons of several tests.
const (
	shortTTL    = "TTLs below 100 ms are refused"
	wrapped     = "the test counts script calls of a wrapped client, which fencelock does not use"
	internals   = "the test reads the library's own list of waiters"
	cancelled   = "a cancelled reservation returns its events only if nothing was granted after it"
	changed     = "a changed limit applies at once, and earlier events keep the time that they took"
	beyondBurst = "a request for more than the burst is an error, since it can never be granted"
)

// suites are the projects whose tests run on fencelock.
var suites = []suite{
	{
		name: "bsm/redislock", module: "github.com/bsm/redislock", version: "v0.10.0", engine: "redislock on go-redis",
		dir: "redislock", files: []string{"redislock_test.go"},
		design: map[string]string{
			"TestObtain_custom_token":                          "owners are generated, and locks are not re-entrant",
			"TestObtain_retry_success":                         shortTTL,
			"TestObtain_retry_failure":                         shortTTL,
			"TestLock_Refresh_retry_failure":                   shortTTL,
			"TestLock_Refresh_expired":                         shortTTL,
			"TestLock_Release_expired":                         shortTTL,
			"TestLock_Release_not_own":                         "the test overwrites the lock's key, which has a prefix here",
			"TestLock_Refresh_retry_transient_error":           wrapped,
			"TestLock_Refresh_retry_transient_error_exhausted": wrapped,
		},
	},
	{
		name: "rueidislock", module: "github.com/redis/rueidis", version: "v1.0.79", engine: "Locker on redislock",
		dir: "rueidislock", from: "rueidislock", files: []string{"lock_test.go"},
		design: map[string]string{
			"TestLocker_WithContext_MissingPeers": internals,
			"TestLocker_WithContext_Cleanup":      internals,
		},
	},
	{
		name: "redis_rate", module: "github.com/go-redis/redis_rate/v10", version: "v10.0.1", engine: "ratelimit on redislock",
		dir: "redis_rate", files: []string{"rate_test.go"},
		design: map[string]string{
			"TestAllow":       beyondBurst,
			"TestAllowAtMost": beyondBurst,
		},
	},
	{
		name: "x/sync/semaphore", module: "golang.org/x/sync", version: "v0.24.0", engine: "semaphore on redislock",
		dir: "semaphore", pkg: "semaphore", from: "semaphore", files: []string{"semaphore_test.go"},
		also: []string{"errgroup/errgroup.go"},
		design: map[string]string{
			"TestWeightedAcquireCanceled": "the error wraps that of the context and names the holder; the test compares with ==",
		},
	},
	{
		name: "x/time/rate", module: "golang.org/x/time", version: "v0.15.0", engine: "the algorithm of ratelimit",
		dir: "rate", from: "rate", files: []string{"rate_test.go"},
		design: map[string]string{
			"TestCancel1Token":          cancelled,
			"TestCancelMulti":           cancelled,
			"TestReserveJumpBackCancel": cancelled,
			"TestReserveJumpBack":       "after the clock was set back, time counts from the new time",
			"TestReserveSetLimit":       changed,
			"TestReserveSetBurst":       changed,
			"TestReserveSetLimitCancel": changed,
			"TestSetAfterZeroLimit":     changed,
		},
	},
}
