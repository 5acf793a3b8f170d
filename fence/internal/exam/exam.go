// Package exam is the conformance suite of the guards of package fence.
package exam

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

// A Resource is guarded: Write writes a value under the fence of ctx, Read returns what
// was written last, and "" at first.
type Resource struct {
	Name  string // in a StaleError
	Write func(ctx context.Context, value string) error
	Read  func() (string, error)
}

// step is a write under token and floor, which is refused for a floor that is stored, or
// done if refused is 0.
type step struct{ token, floor, refused int64 }

const great = 1 << 60 // a float64 does not tell it from its successor

// steps are the life of a resource. A run begins where nothing was written.
var steps = []step{
	{8, 8, 0}, // an exclusive holder, twice
	{8, 8, 0},
	{9, 9, 0}, // its successor
	{8, 8, 9},
	{100, 100, 0}, // a greater number, whose text is smaller
	{9, 9, 100},
	{120, 110, 0}, // two shared holders, the second one first
	{110, 110, 0},
	{120, 110, 0},
	{130, 120, 0}, // one more, when 110 has gone
	{110, 110, 120},
	{125, 110, 0}, // it was granted earlier, and lowers no floor
	{119, 110, 120},
	{120, 110, 0},
	{140, 140, 0}, // an exclusive successor shuts them all out
	{120, 110, 140},
	{130, 120, 140},
	{great + 1, great + 1, 0},
	{great, great, great + 1},
	{great + 1, great + 1, 0},
}

// Run takes a resource through its life, and says where it went wrong.
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

// check compares what a write returned with what it should.
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

// Prints returns what fn prints on standard output. Nothing else may print meanwhile.
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
