package redislock_test

import (
	"github.com/fencelock/fencelock/driver"
)

// weighing gives a shared request a weight.
func weighing(r driver.Request, weight int) driver.Request {
	r.Weight = weight
	return r
}
