package fencelock_test

import (
	"errors"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// plainEngine is an engine and nothing besides.
type plainEngine struct{ driver.Engine }

func TestRegister(t *testing.T) {
	engine := memlock.New(nil)
	records, err := fencelock.New(engine, nil).Records()
	if err != nil {
		t.Fatal(err)
	}
	version, err := records.Swap(t.Context(), "a", []byte("value"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := engine.Client().Records().Get(t.Context(), "a")
	if err != nil || string(rec.Value) != "value" || rec.Version != version {
		t.Errorf("another client reads %+v, %v", rec, err)
	}
	if _, err := fencelock.New(plainEngine{engine}, nil).Records(); !errors.Is(err, fencelock.ErrUnsupported) {
		t.Errorf("an engine without records: got %v, want ErrUnsupported", err)
	}
}
