package pglock_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock"
)

func TestKey(t *testing.T) {
	t.Parallel()
	for id, want := range map[int64]string{
		0:             "pg_advisory_lock(0)",
		42:            "pg_advisory_lock(42)",
		-1:            "pg_advisory_lock(-1)",
		math.MaxInt64: "pg_advisory_lock(9223372036854775807)",
		math.MinInt64: "pg_advisory_lock(-9223372036854775808)",
	} {
		if got := pglock.Key(id); got != want {
			t.Errorf("Key(%d) is %q, want %q", id, got, want)
		}
		if err := driver.CheckName(want); err != nil {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestKeyIDIsExact(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", "42", "pg_advisory_lock", "pg_advisory_lock(", "pg_advisory_lock()", "pg_advisory_lock(+1)",
		"pg_advisory_lock(01)", "pg_advisory_lock(-0)", "pg_advisory_lock( 1)", "pg_advisory_lock(1) ",
		"pg_advisory_lock(1,2)", "pg_advisory_lock(9223372036854775808)", "PG_ADVISORY_LOCK(1)", "pg_advisory_lock(1_0)",
	} {
		if id := pglock.KeyID(name); id != nil {
			t.Errorf("%q stands for %d, want a plain name", name, *id)
		}
	}
}

func TestKeyRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Int64().Draw(t, "id")
		if got := pglock.KeyID(pglock.Key(id)); got == nil || *got != id {
			t.Fatalf("%d came back as %v", id, got)
		}
	})
}
