package redislock_test

import (
	"errors"
	"strconv"
	"strings"
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
	mine, others := e.Records(), s.observer().Records()

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

// TestSwapWhoseWaitForReplicasIsRefused: the server has carried it out before, so if the record
// has changed since that is no conflict, and a right to wait that is missing is no error of a
// swap that has changed nothing.
func TestSwapWhoseWaitForReplicasIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(&redislock.Config{MinReplicas: 1})
	others := s.observer().Records()
	for _, refusal := range []string{
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
		"NOPERM this user has no permissions to run the 'wait' command",
	} {
		rec, err := others.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		tries := 0
		tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			if c.Script != redislock.RecordScript {
				return do()
			}
			c.Replicas = 0 // there is none
			r := tap.Conn.Eval(t.Context(), []redisconn.Call{c})[0]
			if tries++; tries > 1 {
				return r
			}
			if _, err := others.Swap(t.Context(), "a", []byte("theirs"), r.Text, 0); err != nil {
				t.Error(err)
			}
			return redisconn.Reply{Text: r.Text, Err: redisconn.ServerError{Text: refusal}}
		})
		_, err = e.Records().Swap(t.Context(), "a", []byte("mine"), rec.Version, 0)
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig) {
			t.Errorf("%.9s: got %v, want ErrUnavailable", refusal, err)
		}
	}
}

// TestSwapThatIsFoundIsWrittenAgain: a try whose answer was lost may be on no replica yet. WAIT
// says so only of what its own connection has written, since Redis 7.2.
func TestSwapThatIsFoundIsWrittenAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	first := ""
	tap.loseReply(redislock.RecordScript, func(r redisconn.Reply) {
		first = r.Text
		s.server.Do(t, "PEXPIRE", "record:a", "1000000")
	})
	version, err := e.Records().Swap(t.Context(), "a", []byte("one"), "", time.Hour)
	if err != nil || version != first {
		t.Errorf("%q, %v; the try whose answer was lost made %q", version, err, first)
	}
	left, err := strconv.Atoi(strings.TrimSpace(s.server.Do(t, "PTTL", "record:a")))
	if err != nil || left <= 1000000 {
		t.Errorf("the record was not written again: it lasts %d ms, %v", left, err)
	}
}

// TestSwapOfARecordThatExpiresMeanwhile: a swap that is made again after what it had made has
// expired does not bring the version back that others have seen.
func TestSwapOfARecordThatExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	others := s.observer().Records()
	var seen driver.Record
	tap.loseReply(redislock.RecordScript, func(redisconn.Reply) {
		var err error
		if seen, err = others.Get(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		s.server.Do(t, "PEXPIRE", "record:a", "0")
	})
	version, err := e.Records().Swap(t.Context(), "a", []byte("one"), "", time.Hour)
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
		if _, err := e.Records().Swap(t.Context(), "a", nil, "", 0); err != nil {
			t.Error(err)
		}
		list, err := e.Records().List(t.Context(), "")
		if err != nil || len(list) != 1 || list[0].Key != "a" {
			t.Errorf("%+v, %v", list, err)
		}
	}
}
