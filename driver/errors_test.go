package driver_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

func TestCheckName(t *testing.T) {
	for _, c := range []struct {
		what, name string
		says       string // empty if the name is valid
	}{
		{"one byte", "a", ""},
		{"a space", " ", ""},
		{"512 bytes", strings.Repeat("n", 512), ""},
		{"512 bytes of runes", strings.Repeat("ü", 256), ""},
		{"a path", "../../etc", ""},
		{"a newline", "a\nb", ""},
		{"the replacement character", "\ufffd", ""},
		{"nothing", "", "is empty"},
		{"513 bytes", strings.Repeat("n", 513), "513 bytes, more than 512"},
		{"513 bytes in few runes", strings.Repeat("ü", 256) + "n", "513 bytes, more than 512"},
		{"NUL", "a\x00", "NUL"},
		{"a stray byte", "a\xff", "UTF-8"},
		{"half a rune", "日"[:2], "UTF-8"},
		{"a surrogate", "\xed\xa0\x80", "UTF-8"},
	} {
		err := driver.CheckName(c.name)
		if c.says == "" && err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if c.says != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want ErrInvalid that says %q", c.what, err, c.says)
		}
	}
}

func TestRequestCheck(t *testing.T) {
	plain := driver.Traits{Engine: "plain"}
	strict := driver.Traits{Engine: "strict", Limits: true, MinTTL: time.Second, MaxTTL: time.Minute, MaxMinHold: time.Hour}
	evicts := driver.Traits{Engine: "evicts", MaxMinHold: -1}
	for _, c := range []struct {
		what   string
		traits driver.Traits
		change func(*driver.Request)
		want   error
	}{
		{"a plain request", plain, func(*driver.Request) {}, nil},
		{"a bad name", plain, func(r *driver.Request) { r.Name = "" }, driver.ErrInvalid},
		{"no TTL", plain, func(r *driver.Request) { r.TTL = 0 }, driver.ErrInvalid},
		{"a negative TTL", plain, func(r *driver.Request) { r.TTL = -1 }, driver.ErrInvalid},
		{"just short of 100 ms", plain, func(r *driver.Request) { r.TTL = 100*time.Millisecond - 1 }, driver.ErrInvalid},
		{"100 ms", plain, func(r *driver.Request) { r.TTL = 100 * time.Millisecond }, nil},
		{"ten years", plain, func(r *driver.Request) { r.TTL, r.MinHold = driver.MaxDuration, driver.MaxDuration }, nil},
		{"more than ten years", plain, func(r *driver.Request) { r.TTL = driver.MaxDuration + 1 }, driver.ErrInvalid},
		{"the longest number", plain, func(r *driver.Request) { r.TTL = math.MaxInt64 }, driver.ErrInvalid},
		{"a minimum hold of more than ten years", plain, func(r *driver.Request) { r.MinHold = driver.MaxDuration + 1 }, driver.ErrInvalid},
		{"the longest number as a minimum hold", plain, func(r *driver.Request) { r.MinHold = math.MaxInt64 }, driver.ErrInvalid},
		{"less than the shortest", strict, func(r *driver.Request) { r.TTL = time.Second - 1 }, driver.ErrInvalid},
		{"the shortest", strict, func(r *driver.Request) { r.TTL = time.Second }, nil},
		{"the longest", strict, func(r *driver.Request) { r.TTL = time.Minute }, nil},
		{"more than the longest", strict, func(r *driver.Request) { r.TTL = time.Minute + 1 }, driver.ErrInvalid},
		{"a minimum hold", plain, func(r *driver.Request) { r.MinHold = time.Hour }, nil},
		{"the longest minimum hold", strict, func(r *driver.Request) { r.MinHold = time.Hour }, nil},
		{"more than the longest minimum hold", strict, func(r *driver.Request) { r.MinHold = time.Hour + 1 }, driver.ErrInvalid},
		{"a minimum hold that may be forgotten", evicts, func(r *driver.Request) { r.MinHold = 1 }, driver.ErrInvalid},
		{"no minimum hold where it may be forgotten", evicts, func(*driver.Request) {}, nil},
		{"a minimum hold of a shared lock", plain, func(r *driver.Request) { r.Mode, r.MinHold = driver.Shared, 1 }, driver.ErrInvalid},
		{"a minimum hold of a seat", strict, func(r *driver.Request) { r.Mode, r.Limit, r.MinHold = driver.Shared, 3, 1 }, driver.ErrInvalid},
		{"a negative minimum hold", plain, func(r *driver.Request) { r.MinHold = -1 }, driver.ErrInvalid},
		{"shared", plain, func(r *driver.Request) { r.Mode = driver.Shared }, nil},
		{"a limit", strict, func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, 3 }, nil},
		{"a limit on an engine without", plain, func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, 3 }, driver.ErrUnsupported},
		{"a limit without shared", strict, func(r *driver.Request) { r.Limit = 3 }, driver.ErrInvalid},
		{"a limit without shared or limits", plain, func(r *driver.Request) { r.Limit = 3 }, driver.ErrInvalid},
		{"the greatest limit", strict, func(r *driver.Request) { r.Mode, r.Limit, r.Weight = driver.Shared, driver.MaxLimit, driver.MaxLimit }, nil},
		{"more than the greatest limit", strict, func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, driver.MaxLimit+1 }, driver.ErrInvalid},
		{"the greatest number as a limit", strict, func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, math.MaxInt }, driver.ErrInvalid},
		{"the greatest number as a weight", strict, func(r *driver.Request) { r.Mode, r.Limit, r.Weight = driver.Shared, math.MaxInt, math.MaxInt }, driver.ErrInvalid},
		{"a weight", strict, func(r *driver.Request) { r.Mode, r.Limit, r.Weight = driver.Shared, 3, 3 }, nil},
		{"a weight above the limit", strict, func(r *driver.Request) { r.Mode, r.Limit, r.Weight = driver.Shared, 3, 4 }, driver.ErrInvalid},
		{"a weight without a limit", strict, func(r *driver.Request) { r.Mode, r.Weight = driver.Shared, 1 }, driver.ErrInvalid},
		{"a weight without shared", strict, func(r *driver.Request) { r.Weight = 1 }, driver.ErrInvalid},
		{"a negative weight", strict, func(r *driver.Request) { r.Mode, r.Limit, r.Weight = driver.Shared, 3, -1 }, driver.ErrInvalid},
		{"a negative limit", strict, func(r *driver.Request) { r.Mode, r.Limit = driver.Shared, -1 }, driver.ErrInvalid},
	} {
		req := driver.Request{Name: "name", TTL: 2 * time.Second}
		c.change(&req)
		if err := req.Check(c.traits); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, err, c.want)
		}
	}
}

func TestHeldError(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	who := driver.Identity{Host: "a.example", PID: 12, Note: "nightly"}
	for _, c := range []struct {
		err  driver.HeldError
		want string
	}{
		{driver.HeldError{Name: "n"}, `"n" is held`},
		{driver.HeldError{Name: "a\nb"}, `"a\nb" is held`},
		{driver.HeldError{Name: "n", Owner: "o"}, `"n" is held by o`},
		{driver.HeldError{Name: "n", Owner: "o", Identity: who}, `"n" is held by pid 12 on a.example (nightly)`},
		{driver.HeldError{Name: "n", Since: at, Until: at.Add(time.Minute)},
			`"n" is held since 2026-01-02T03:04:05Z until 2026-01-02T03:05:05Z`},
		{driver.HeldError{Name: "n", Owner: "nobody", Until: at}, `"n" is closed by a minimum hold until 2026-01-02T03:04:05Z`},
		{driver.HeldError{Name: "n", Owner: "o", Until: at}, `"n" is held by o until 2026-01-02T03:04:05Z unless renewed`},
		{driver.HeldError{Name: "n", Identity: who, Until: at},
			`"n" is held by pid 12 on a.example (nightly) until 2026-01-02T03:04:05Z unless renewed`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	err := fmt.Errorf("wrapped: %w", &driver.HeldError{Name: "n"})
	if !errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("%v is not ErrHeld alone", err)
	}
}

func TestWaitedFor(t *testing.T) {
	held := &driver.HeldError{Name: "n", Owner: "o"}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for cause, ctx := range map[error]context.Context{context.Canceled: canceled, context.DeadlineExceeded: over(t)} {
		err := waitedFor(held, ctx)
		if !errors.Is(err, driver.ErrHeld) || !errors.Is(err, cause) {
			t.Errorf("%v is not both ErrHeld and %v", err, cause)
		}
		if facts, ok := errors.AsType[*driver.HeldError](err); !ok || facts != held {
			t.Errorf("%v has lost the facts", err)
		}
		if want := `"n" is held by o: gave up waiting: ` + cause.Error(); err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
