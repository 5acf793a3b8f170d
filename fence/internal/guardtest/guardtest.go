// Package guardtest is the conformance suite of the guards of package fence.
package guardtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/fencelock/fencelock/fence"
)

// Under returns a context with the fence of an exclusive holder.
func Under(t testing.TB, token int64) context.Context {
	return fence.NewContext(t.Context(), fence.Fence{Name: "lock", Token: token, Floor: token})
}

// A Resource is guarded. Write writes a value with the fence of ctx. Read returns the last written
// value, or "" if there is none.
type Resource struct {
	Name  string // as in a StaleError
	Write func(ctx context.Context, value string) error
	Read  func() (string, error)
}

// step is a write with a token and a floor. refused is the stored floor that refuses it, or 0 if it
// succeeds.
type step struct{ token, floor, refused int64 }

const great = 1 << 60 // a float64 cannot distinguish it from its successor

// steps are the writes to one resource, starting with an empty one.
var steps = []step{
	{8, 8, 0}, // an exclusive holder writes twice
	{8, 8, 0},
	{9, 9, 0}, // its successor
	{8, 8, 9},
	{100, 100, 0}, // a greater number that is smaller as text
	{9, 9, 100},
	{120, 110, 0}, // two shared holders, the later one first
	{110, 110, 0},
	{120, 110, 0},
	{130, 120, 0}, // a third one, after 110 has ended
	{110, 110, 120},
	{125, 110, 0}, // granted earlier: it does not lower the floor
	{119, 110, 120},
	{120, 110, 0},
	{140, 140, 0}, // an exclusive successor excludes them all
	{120, 110, 140},
	{130, 120, 140},
	{great + 1, great + 1, 0},
	{great, great, great + 1},
	{great + 1, great + 1, 0},
}

// Run makes all steps on a resource and returns the first deviation.
func Run(ctx context.Context, r Resource) error {
	if err := r.Write(ctx, "without a token"); !errors.Is(err, fence.ErrNoToken) {
		return fmt.Errorf("without a token: %v, want ErrNoToken", err)
	}
	written := ""
	for i, s := range steps {
		value := fmt.Sprintf("write %d", i+1)
		err := r.Write(fence.NewContext(ctx, fence.Fence{Name: "lock", Token: s.token, Floor: s.floor}), value)
		if s.refused == 0 {
			written = value
		}
		if err := s.check(err, r.Name); err != nil {
			return fmt.Errorf("write %d, token %d, floor %d: %w", i+1, s.token, s.floor, err)
		}
		if got, err := r.Read(); err != nil || got != written {
			return fmt.Errorf("after write %d the resource has %q, %v, want %q", i+1, got, err, written)
		}
	}
	return nil
}

// check compares the result of a write with the expected one.
func (s step) check(err error, name string) error {
	if s.refused == 0 {
		return err
	}
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok || !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("%v, want a StaleError", err)
	}
	if want := (fence.StaleError{Resource: name, Token: s.token, Floor: s.refused}); *stale != want {
		return fmt.Errorf("%+v, want %+v", *stale, want)
	}
	return nil
}

// Prints returns what fn prints to standard output. Nothing else may print in the meantime.
func Prints(fn func()) string {
	in, out, err := os.Pipe()
	if err != nil {
		return err.Error()
	}
	before := os.Stdout
	os.Stdout = out
	text := make(chan string)
	go func() { // ends when out is closed
		all, _ := io.ReadAll(in)
		text <- string(all)
	}()
	func() {
		defer func() {
			os.Stdout = before
			_ = out.Close()
		}()
		fn()
	}()
	return <-text
}
