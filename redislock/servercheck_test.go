package redislock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

// masters answers the commands that check a server.
type masters struct {
	redisconn.Conn
	cluster bool
	each    func() (info string, err error)
}

func (m *masters) Cluster() bool { return m.cluster }

func (m *masters) Each(context.Context, ...string) ([]redisconn.Answer, error) {
	info, err := m.each()
	return []redisconn.Answer{{Text: info, Err: err}}, nil
}

const (
	keeps  = "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
	evicts = "maxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n"
)

// TestCheckOfAnotherServer: a check is in progress when the connection moves to another server. Its
// answer does not count for a call that comes later.
func TestCheckOfAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan bool)
		answers := []func() string{func() string { <-first; return keeps }, func() string { return evicts }}
		m := &masters{each: func() (string, error) {
			next := answers[0]
			answers = answers[1:]
			return next(), nil
		}}
		f := redislock.NewFitness(m, nil)
		defer f.Close()
		fit := func() <-chan error {
			done := make(chan error, 1)
			go func() { // ends with the checks
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				done <- f.Require(ctx)
			}()
			time.Sleep(time.Millisecond)
			return done
		}
		fit()
		f.Invalidate()
		later := fit()
		close(first)
		if err := <-later; !errors.Is(err, driver.ErrConfig) {
			t.Errorf("got %v, want ErrConfig", err)
		}
	})
}

// TestCheckOfAClusterFails: the next call checks again.
func TestCheckOfAClusterFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		var failing atomic.Bool
		m := &masters{cluster: true, each: func() (string, error) {
			calls.Add(1)
			if failing.Load() {
				return "", errors.New("no answer")
			}
			return keeps, nil
		}}
		f := redislock.NewFitness(m, &redislock.Config{RetryTimeout: time.Second})
		defer f.Close()
		fit := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := f.Require(ctx); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
		}
		fit()
		failing.Store(true)
		f.Invalidate()
		fit()
		before := calls.Load()
		failing.Store(false)
		fit()
		if calls.Load() == before {
			t.Error("after a check that failed, there was no other one")
		}
		before = calls.Load()
		fit()
		if calls.Load() != before {
			t.Error("after a check that succeeded, there was another one")
		}
	})
}
