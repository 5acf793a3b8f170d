package redislock

import (
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// format begins the text of a lock key that is ours, and, after the prefix, the names of
// the keys beside it and of the channels. What another format writes is not ours to judge.
const format = "fencelock:1"

// holderPrefix begins the text that says who holds a lock.
const holderPrefix = format + " "

// keyspace is which keys and channels belong to the clients of one prefix.
type keyspace struct {
	prefix  string
	cluster func() bool // keys of one name must lie in one slot
}

// base begins the keys beside those of locks, and the channels. The scripts know the rest.
func (s keyspace) base() string { return s.prefix + format + ":" }

// lockKey returns the key of a name: the one that plain SET NX locks of other programs use.
func (s keyspace) lockKey(name string) (string, error) {
	lock := s.prefix + "lock:" + name
	if s.cluster() && strings.Contains(lock, "}") && !hasTag(lock) {
		return "", fmt.Errorf("%w: on a Redis Cluster %q cannot keep its keys in one slot: it has a } and no hash tag; leave the } out", driver.ErrInvalid, name)
	}
	return lock, nil
}

// tagOf returns the end of the keys beside a lock, as the function of the scripts does.
func tagOf(lock string) string {
	if hasTag(lock) {
		return lock
	}
	return "{" + lock + "}"
}

// nameOf returns the name whose lock is at key, or which a key beside a lock is about.
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

// hasTag reports whether Redis Cluster hashes only a part of the key: what is
// between the first { and the next }, unless that is empty.
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

// checkPrefix refuses a prefix that begins like a key of clients without one, and one with a
// brace that would come before the hash tag of the keys beside a lock.
func checkPrefix(prefix string) error {
	for _, taken := range [...]string{"lock:", recordPrefix, "fencelock:"} {
		if strings.HasPrefix(prefix, taken) {
			return fmt.Errorf("%w: the prefix %q begins with %q, as keys of clients without a prefix do; use another one", driver.ErrConfig, prefix, taken)
		}
	}
	if strings.ContainsAny(prefix, "{}") && !hasTag(prefix) {
		return fmt.Errorf("%w: the prefix %q has a brace and no hash tag; leave the brace out", driver.ErrConfig, prefix)
	}
	return nil
}

// markerKey is the key of the server's last known incarnation.
func (s keyspace) markerKey() string { return s.prefix + "fencelock:incarnation" }
