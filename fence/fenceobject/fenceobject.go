// Package fenceobject is the guard of package fence for objects. The store must write an object on
// the condition that it is still the one that was read, as with If-Match and If-None-Match.
//
// The floor is the first line of each object: 19 digits and a newline. It is not in the metadata,
// because the ETag of many stores is a hash of the content alone: if a later holder writes the old
// content again, the old ETag comes back, and a stale write that waits for it would succeed.
package fenceobject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/retry"
)

// Store is an object store with conditional writes. [HTTP] is one, for servers that speak
// plain HTTP; for another kind, three lines with its own client are enough. Its methods
// are called from many goroutines.
type Store interface {
	// Get returns the first bytes of an object, at most so many, and its ETag, which
	// changes when the contents change. The ETag of an object that does not exist is
	// empty.
	Get(ctx context.Context, key string, most int64) (head []byte, etag string, err error)

	// Put writes an object if its ETag is etag, or if it does not exist and etag is empty,
	// in one atomic step. It returns an ErrChanged if that is not so, and nothing is
	// written then. After any other error it may have been written, or be written later,
	// if that is still so.
	Put(ctx context.Context, key string, body []byte, etag string) error
}

// ErrChanged says that an object is not the one that was read.
var ErrChanged = errors.New("fence: the object has changed")

// line is how long the first line of an object is.
const line = 20

// Put writes data to an object, unless the token of ctx is stale: then it is a
// *[fence.StaleError], whose resource is the key. It reads the floor, and writes on the
// condition that the object is still the same; if it is not, it begins anew, until ctx
// ends. So it is right however late the store gets a request.
//
// After another error of the store it is not known whether the data was written. An object
// that is deleted takes its floor with it: put empty data there instead.
func Put(ctx context.Context, store Store, key string, data []byte) error {
	f, err := fence.From(ctx)
	if err != nil {
		return err
	}
	for pause := retry.NewBackoff(10*time.Millisecond, time.Second); ; {
		head, etag, err := store.Get(ctx, key, line)
		if err != nil {
			return fmt.Errorf("fence: read %q: %w", key, err)
		}
		floor := int64(0)
		if etag != "" {
			if floor, err = readFloor(head); err != nil {
				return fmt.Errorf("fence: floor of %q: %w", key, err)
			}
		}
		if stale(f, floor) {
			return f.Refuse(ctx, key, floor)
		}
		body := append(fmt.Appendf(nil, "%019d\n", raise(f, floor)), data...)
		err = store.Put(ctx, key, body, etag)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrChanged) {
			return fmt.Errorf("fence: write %q: %w", key, err)
		}
		if !pause.Wait(ctx) {
			return fmt.Errorf("fence: write %q: %w (%w): %w", key, ctx.Err(), context.Cause(ctx), err)
		}
	}
}

// The rule of the guard; a test changes it to see that it would notice.
var (
	stale = func(f fence.Fence, floor int64) bool { return f.Token < floor }
	raise = func(f fence.Fence, floor int64) int64 { return max(f.Floor, floor) }
)

// Get returns the data of an object that Put has written. ok is false if there is none.
func Get(ctx context.Context, store Store, key string) (data []byte, ok bool, err error) {
	body, etag, err := store.Get(ctx, key, math.MaxInt64)
	if err != nil {
		return nil, false, fmt.Errorf("fence: read %q: %w", key, err)
	}
	if etag == "" {
		return nil, false, nil
	}
	if _, err := readFloor(body); err != nil {
		return nil, false, fmt.Errorf("fence: floor of %q: %w", key, err)
	}
	return body[line:], true, nil
}

// readFloor reads the first line of an object.
func readFloor(body []byte) (int64, error) {
	if len(body) >= line && body[line-1] == '\n' && len(bytes.Trim(body[:line-1], "0123456789")) == 0 {
		return strconv.ParseInt(string(body[:line-1]), 10, 64)
	}
	return 0, errors.New("the object does not begin with one: it was written without the guard")
}
