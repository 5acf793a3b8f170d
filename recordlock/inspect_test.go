package recordlock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// Inspect reports the store's clock once, and warns if there is none.
func TestInspectReportsTheClockOnce(t *testing.T) {
	for what, limit := range map[string]func(driver.Records) driver.Records{
		"a clock":  func(r driver.Records) driver.Records { return polled{r} },
		"no clock": func(r driver.Records) driver.Records { return noClock{r} },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New(nil)
				defer store.Kill()
				e := recordlock.New(limit(store.Records()), nil)
				defer e.Close()
				findings, err := e.Inspect(t.Context(), 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				var found []driver.Severity
				for _, f := range findings {
					if f.Check == "clock" {
						found = append(found, f.Severity)
					}
				}
				if len(found) != 1 || (found[0] == driver.Warning) != (what == "no clock") {
					t.Errorf("%v in %+v", found, findings)
				}
			})
		})
	}
}

// Inspect leaves no record for long, also in a store without a clock, where nothing shows that its
// minimum hold is over.
func TestInspectLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		defer store.Kill()
		e := recordlock.New(noClock{store.Records()}, nil)
		defer e.Close()
		if _, err := e.Inspect(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		other := recordlock.New(noClock{store.Records()}, nil) // it has not seen when the minimum hold began
		defer other.Close()
		if list, err := other.List(t.Context(), driver.Query{}); err != nil || len(list) > 0 {
			t.Errorf("a day later, %+v, %v", list, err)
		}
	})
}

// A list has the locks beside a record that is no lock, and the error has the key of that one.
func TestListWithABrokenRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		defer store.Kill()
		if _, err := store.Records().Swap(t.Context(), "fencelock.lock/odd", []byte("garbage"), "", 0); err != nil {
			t.Fatal(err)
		}
		e := recordlock.New(polled{store.Records()}, nil)
		defer e.Close()
		if _, err := e.Acquire(t.Context(), driver.Request{Name: "good", TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		list, err := e.List(t.Context(), driver.Query{})
		if len(list) != 1 || !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), `"fencelock.lock/odd"`) {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
