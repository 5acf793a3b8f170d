// Package fenceobject is the guard of package fence for object stores with conditional writes
// (If-Match and If-None-Match).
//
// The floor, the lowest token that is still valid, is the first line of each object: 19 digits and
// a newline. It is not in the metadata, because the ETag of many stores is a hash of the contents
// alone. If a later holder wrote the earlier contents again, the earlier ETag would return, and the
// store would accept a late write that has it as its condition.
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

// Store is an object store with conditional writes. [HTTP] implements it for servers with plain
// HTTP. For other stores implement it with their own client. Its methods must be safe for
// concurrent use.
type Store interface {
	// Get returns at most the first limit bytes of an object, and its ETag, which changes whenever
	// the contents change. If the object does not exist, the ETag is empty.
	Get(ctx context.Context, key string, limit int64) (head []byte, etag string, err error)

	// Put writes an object atomically if its ETag is etag, or if it does not exist and etag is
	// empty. Otherwise it writes nothing and returns an ErrChanged. After any other error the
	// object may have been written, or may be written later if the condition still holds.
	Put(ctx context.Context, key string, body []byte, etag string) error
}

// ErrChanged means that an object is not the one that was read.
var ErrChanged = errors.New("fence: the object has changed")

// line is the length of the first line of an object.
const line = 20

// Put writes data to an object. If the token of ctx is stale, it returns a *[fence.StaleError]
// whose resource is the key. Put reads the floor and then writes on the condition that the object
// has not changed. If it has, Put starts over, until ctx ends. It is correct even if a request
// reaches the store late.
//
// After another error of the store it is unknown whether the data was written. Deleting an object
// also deletes its floor: write empty data instead.
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

// The rule of the guard. A test changes it to check that it would be detected.
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

// readFloor parses the first line of an object.
func readFloor(body []byte) (int64, error) {
	if len(body) >= line && body[line-1] == '\n' && len(bytes.Trim(body[:line-1], "0123456789")) == 0 {
		return strconv.ParseInt(string(body[:line-1]), 10, 64)
	}
	return 0, errors.New("the object has no floor in its first line: it was written without the guard")
}
