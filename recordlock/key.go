package recordlock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

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

// Records returns the records that the engine was made with. Their List leaves out those of locks. They
// are a driver.Awaiter if those are. It does no I/O.
func (e *Engine) Records() driver.Records {
	o := others{e.records, e.cfg.Prefix}
	if e.awaiter == nil {
		return o
	}
	return reported{o}
}

// others are the records of programs.
type others struct {
	driver.Records
	locks string // the prefix of those of locks
}

// List returns the records whose keys have a prefix; see [driver.Records].
func (o others) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	list, err := o.Records.List(ctx, prefix)
	return slices.DeleteFunc(list, func(r driver.Record) bool { return strings.HasPrefix(r.Key, o.locks) }), err
}

// reported are the records of programs in a store that reports changes.
type reported struct{ others }

// Await returns a record once it has changed; see [driver.Awaiter].
func (r reported) Await(ctx context.Context, key, version string) (driver.Record, error) {
	return r.Records.(driver.Awaiter).Await(ctx, key, version)
}
