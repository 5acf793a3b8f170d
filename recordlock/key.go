package recordlock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/recordtext"
)

// maxKey is the maximum length of a key; see driver.CheckName.
const maxKey = 512

// long begins the keys of names that do not fit, after the prefix. Names that begin with its first
// byte have such keys, too, so that no other key begins with it.
const long = "\x01long/"

// key returns the key of the record of a name.
func (e *Engine) key(name string) string {
	if key := e.cfg.Prefix + name; len(key) <= maxKey && !strings.HasPrefix(name, long[:1]) {
		return key
	}
	sum := sha256.Sum256([]byte(name))
	return e.cfg.Prefix + long + hex.EncodeToString(sum[:])
}

// cut returns a text as it is stored.
func cut(text string) string { return recordtext.Cut(text, maxText) }

// Records returns the records that the engine was made with, without those of locks. It does no
// I/O.
func (e *Engine) Records() driver.Records { return others{e.records, e.cfg.Prefix} }

// others are the records of programs. Those of locks are hidden.
type others struct {
	driver.Records
	prefix string
}

func (o others) check(key string) error {
	if strings.HasPrefix(key, o.prefix) {
		return fmt.Errorf("%w: keys that begin with %q are locks", driver.ErrInvalid, o.prefix)
	}
	return nil
}

// Get returns the record of a key; see [driver.Records].
func (o others) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := o.check(key); err != nil {
		return driver.Record{}, err
	}
	return o.Records.Get(ctx, key)
}

// Swap replaces the record of a key; see [driver.Records].
func (o others) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := o.check(key); err != nil {
		return "", err
	}
	return o.Records.Swap(ctx, key, value, version, ttl)
}

// List returns the records whose keys have a prefix; see [driver.Records].
func (o others) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	list, err := o.Records.List(ctx, prefix)
	return slices.DeleteFunc(list, func(r driver.Record) bool { return o.check(r.Key) != nil }), err
}
