// Package redisfloor is the guard for Redis, independent of the client.
package redisfloor

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/retry"
)

// Guard is the script around the script of the caller.
//
//go:embed guard.lua
var Guard string

const (
	// command is the script for one command on one key.
	command = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"

	// hset is the script for HSET, in batches that Lua's unpack can handle.
	hset = "for i = 1, #ARGV, 4000 do redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 3999, #ARGV))) end return 1"
)

// Call is a guarded script with its keys and arguments.
type Call struct {
	Script     string
	Keys, Args []string
	fence      fence.Fence
	resource   string
}

// Command returns the call for a command on one key, which is the resource.
func Command(ctx context.Context, keep time.Duration, name, key string, args ...string) (Call, error) {
	return Script(ctx, keep, key, command, []string{key}, append([]string{name}, args...))
}

// HSet returns the call that sets fields of a hash, which is the resource.
func HSet(ctx context.Context, keep time.Duration, key string, fields []string) (Call, error) {
	if len(fields) == 0 || len(fields)%2 != 0 {
		return Call{}, fmt.Errorf("fence: set fields of %q: got %d words, want name, value, name, value", key, len(fields))
	}
	return Script(ctx, keep, key, hset, []string{key}, fields)
}

// SetArgs returns the arguments of SET for a value, which expires after ttl if that is positive.
func SetArgs(value string, ttl time.Duration) []string {
	if ttl <= 0 {
		return []string{value}
	}
	return []string{value, "PX", milliseconds(ttl)}
}

// Script returns the call for a script on keys in the slot of the key resource.
func Script(ctx context.Context, keep time.Duration, resource, script string, keys, args []string) (Call, error) {
	f, err := fence.From(ctx)
	if err != nil {
		return Call{}, err
	}
	floor, err := Key(resource)
	if err != nil {
		return Call{}, err
	}
	for _, k := range keys {
		if hashed(k) != hashed(resource) {
			return Call{}, fmt.Errorf("%w: %q is not in the slot of %q: give both the same {hash tag}", fence.ErrResource, k, resource)
		}
	}
	return Call{
		Script: strings.Replace(Guard, "--SCRIPT", script, 1),
		Keys:   append([]string{floor}, keys...),
		Args: append([]string{
			strconv.FormatInt(f.Token, 10), strconv.FormatInt(f.Floor, 10), milliseconds(keep),
		}, args...),
		fence:    f,
		resource: resource,
	}, nil
}

// Key returns the key of a resource's floor, in the slot of the resource.
func Key(resource string) (string, error) {
	tag := hashed(resource)
	switch {
	case isFloor(resource): // a write to it would lower the floor
		return "", fmt.Errorf("%w: %q is the floor of another key", fence.ErrResource, resource)
	case tag != resource:
		return "floor:{" + tag + "}:" + resource, nil
	case tag == "" || strings.Contains(tag, "}"):
		return "", fmt.Errorf("%w: no key can be made in the slot of %q: give it a {hash tag}", fence.ErrResource, resource)
	}
	return "floor:{" + tag + "}", nil
}

// isFloor reports whether a key is the floor of a resource.
func isFloor(key string) bool {
	rest, ok := strings.CutPrefix(key, "floor:{")
	if !ok {
		return false
	}
	tag, tail, _ := strings.Cut(rest, "}")
	for _, resource := range []string{tag, strings.TrimPrefix(tail, ":")} {
		if floor, err := Key(resource); err == nil && floor == key {
			return true
		}
	}
	return false
}

// hashed returns the part of a key that determines its slot.
func hashed(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// milliseconds rounds up, because the script takes 0 as no limit.
func milliseconds(d time.Duration) string {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return strconv.FormatInt(max(ms, 0), 10)
}

// Refused returns the error of the call for an error of the server: a *fence.StaleError if the
// guard refused, and err otherwise. text is the text of the server's error.
func (c Call) Refused(ctx context.Context, text string, err error) error {
	stored, ok := strings.CutPrefix(text, "FENCESTALE ")
	if !ok {
		return err
	}
	floor, err := strconv.ParseInt(stored, 10, 64)
	if err != nil {
		return fmt.Errorf("fence: floor of %q: %w", c.resource, err)
	}
	return c.fence.Refuse(ctx, c.resource, floor)
}

// Pauses between attempts while a slot moves: ten, two seconds in total.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 300 * time.Millisecond
	maxPauses  = 10
)

// RetryMoving repeats a call while the server refuses it because some of its keys have moved to
// another node and others have not. errOf returns the error of a result.
func RetryMoving[R any](ctx context.Context, call func() R, errOf func(R) error) R {
	pause := retry.NewBackoff(firstPause, lastPause)
	for n := 0; ; n++ {
		result := call()
		err := errOf(result)
		if err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") || n == maxPauses || !pause.Wait(ctx) {
			return result
		}
	}
}
