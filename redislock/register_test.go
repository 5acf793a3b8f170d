package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

// TestSwapWhoseAnswerIsLost: it is made again, and is carried out once. If the record
// has changed meanwhile nobody can say whether it was carried out, so it is no conflict.
func TestSwapWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	mine, others := e.Register(), s.observer().Register()

	tap.loseReply(redislock.RecordScript, func(redisconn.Reply) {})
	version, err := mine.Swap(t.Context(), "a", []byte("one"), "", 0)
	if rec, errGet := others.Get(t.Context(), "a"); err != nil || errGet != nil || rec.Version != version || string(rec.Value) != "one" {
		t.Errorf("after a lost answer: %q, %v; the record is %+v, %v", version, err, rec, errGet)
	}

	tap.loseReply(redislock.RecordScript, func(redisconn.Reply) {
		rec, err := others.Get(t.Context(), "a")
		if err == nil {
			_, err = others.Swap(t.Context(), "a", []byte("three"), rec.Version, 0)
		}
		if err != nil {
			t.Error(err)
		}
	})
	_, err = mine.Swap(t.Context(), "a", []byte("two"), version, 0)
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) {
		t.Errorf("a lost answer, and another writer since: got %v, want ErrUnavailable", err)
	}

	_, err = mine.Swap(t.Context(), "a", []byte("two"), version, 0)
	if !errors.Is(err, driver.ErrConflict) {
		t.Errorf("from a version that has gone: got %v, want ErrConflict", err)
	}
}

// TestSwapOfARecordThatExpiresMeanwhile: a swap that is made again after what it had made has
// expired does not bring the version back that others have seen.
func TestSwapOfARecordThatExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	others := s.observer().Register()
	var seen driver.Record
	tap.loseReply(redislock.RecordScript, func(redisconn.Reply) {
		var err error
		if seen, err = others.Get(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		s.server.Do(t, "PEXPIRE", "record:a", "0")
	})
	version, err := e.Register().Swap(t.Context(), "a", []byte("one"), "", time.Hour)
	if err != nil || seen.Version == "" || version == seen.Version {
		t.Errorf("%q, %v; before it expired it was %q", version, err, seen.Version)
	}
	if _, err := others.Swap(t.Context(), "a", []byte("two"), seen.Version, 0); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("from the version that has expired: got %v, want ErrConflict", err)
	}
	if _, err := others.Swap(t.Context(), "a", []byte("two"), version, 0); err != nil {
		t.Errorf("from the version that there is: %v", err)
	}
}

// TestRecordsOfPrefixes: deployments that share a server do not see each other's records.
func TestRecordsOfPrefixes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	one := redislock.New(rueidisClient(t, rueidisOption(s.server.Addr())), &redislock.Config{Prefix: "one:"})
	two := redislock.New(rueidisClient(t, rueidisOption(s.server.Addr())), &redislock.Config{Prefix: "two:"})
	for _, e := range []*redislock.Engine{one, two} {
		t.Cleanup(func() { _ = e.Close() })
		if _, err := e.Register().Swap(t.Context(), "a", nil, "", 0); err != nil {
			t.Error(err)
		}
		list, err := e.Register().List(t.Context(), "")
		if err != nil || len(list) != 1 || list[0].Key != "a" {
			t.Errorf("%+v, %v", list, err)
		}
	}
}
