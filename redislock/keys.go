package redislock

import (
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// format begins the value of our lock keys and, after the prefix, the names of the related keys and
// channels. A value of another version's format is treated as held.
const format = "fencelock:2"

// holderPrefix begins the value of a lock key that names its holder.
const holderPrefix = format + " "

// keyspace is the keys and channels of the clients with one prefix.
type keyspace struct {
	prefix  string
	cluster func() bool // reports whether the keys of one name must share a slot
}

// base begins the names of the channels and of all keys of a lock but its own. The scripts append
// to it.
func (s keyspace) base() string { return s.prefix + format + ":" }

// lockKey returns the key of a name, which is the key that plain SET NX locks use.
func (s keyspace) lockKey(name string) (string, error) {
	lock := s.prefix + "lock:" + name
	if s.cluster() && strings.Contains(lock, "}") && !hasTag(lock) {
		return "", fmt.Errorf("%w: on a Redis Cluster the keys of %q cannot share a slot, because it contains } but no hash tag; remove the }", driver.ErrInvalid, name)
	}
	return lock, nil
}

// alive returns the beginning of the keys that say which waiting clients are alive. On a Cluster each
// name has keys of its own.
func (s keyspace) alive(lock string) string {
	if !s.cluster() {
		return s.base() + "alive:"
	}
	return s.base() + "alive:" + tagOf(lock) + ":"
}

// tagOf returns the end of the related keys' names; it must match the scripts' function.
func tagOf(lock string) string {
	if hasTag(lock) {
		return lock
	}
	return "{" + lock + "}"
}

// nameOf returns the name of a lock from its key or from that of a related key.
func (s keyspace) nameOf(key string) (string, bool) {
	lock := key
	if rest, ok := strings.CutPrefix(key, s.base()); ok {
		_, lock, _ = strings.Cut(rest, ":")
		if inner := strings.TrimSuffix(strings.TrimPrefix(lock, "{"), "}"); tagOf(inner) == lock {
			lock = inner
		}
	}
	name, ok := strings.CutPrefix(lock, s.prefix+"lock:")
	return name, ok && driver.CheckName(name) == nil
}

// hasTag reports whether Redis Cluster hashes only a part of the key: the text between the first {
// and the next }, unless that is empty.
func hasTag(key string) bool {
	_, after, ok := strings.Cut(key, "{")
	return ok && strings.Index(after, "}") > 0
}

// slotTag returns the part of a key that Redis Cluster hashes.
func slotTag(key string) string {
	if !hasTag(key) {
		return key
	}
	_, after, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(after, "}")
	return tag
}

// checkPrefix rejects a prefix that begins like a key of clients without a prefix, and one with a
// brace that would precede the hash tag of the related keys.
func checkPrefix(prefix string) error {
	for _, taken := range [...]string{"lock:", recordPrefix, "fencelock:"} {
		if strings.HasPrefix(prefix, taken) {
			return fmt.Errorf("%w: the prefix %q begins with %q, like keys of clients without a prefix; choose another prefix", driver.ErrConfig, prefix, taken)
		}
	}
	if strings.ContainsAny(prefix, "{}") && !hasTag(prefix) {
		return fmt.Errorf("%w: the prefix %q contains a brace but no hash tag; remove the brace", driver.ErrConfig, prefix)
	}
	return nil
}

// markerKey returns the key that holds the last known incarnation of the server.
func (s keyspace) markerKey() string { return s.prefix + "fencelock:incarnation" }
