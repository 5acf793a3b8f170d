package redislock

import (
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// keys are the keys of one name that most scripts need. The lock's own is the one
// that plain SET NX locks of other programs use.
type keys struct{ lock, fence string }

// companions are the prefixes of the keys beside the lock's own, which lie in the
// same slot.
var companions = [...]string{"fence:", "queue:", "alive:", "shared:", "meta:"}

// companion returns a key beside the lock's own.
func (k keys) companion(prefix string) string { return prefix + k.fence[len("fence:"):] }

// all returns every key that the name may have.
func (k keys) all() []string {
	list := []string{k.lock}
	for _, prefix := range companions {
		list = append(list, k.companion(prefix))
	}
	return list
}

// keyspace is which keys and channels belong to the clients of one prefix.
type keyspace struct {
	prefix  string
	cluster func() bool // keys of one name must lie in one slot
}

// keysOf returns the keys of a name.
func (s keyspace) keysOf(name string) (keys, error) {
	fence := "fence:{" + s.prefix + "lock:" + name + "}"
	lock := fence[len("fence:{") : len(fence)-1]
	if hasTag(lock) {
		return keys{lock, "fence:" + lock}, nil
	}
	if s.cluster() && strings.Contains(lock, "}") {
		return keys{}, fmt.Errorf("%w: on a Redis Cluster %q cannot keep its keys in one slot: it has a } and no hash tag; leave the } out", driver.ErrInvalid, name)
	}
	return keys{lock, fence}, nil
}

// nameOf returns the name whose lock, or whose companion, is at key.
func (s keyspace) nameOf(key string) (string, bool) {
	lock := key
	for _, c := range companions {
		if rest, ok := strings.CutPrefix(key, c); ok {
			lock = rest
			if inner, ok := strings.CutPrefix(rest, "{"); ok && strings.HasSuffix(inner, "}") && !hasTag(inner[:len(inner)-1]) {
				lock = inner[:len(inner)-1]
			}
			break
		}
	}
	name, ok := strings.CutPrefix(lock, s.prefix+"lock:")
	return name, ok && driver.CheckName(name) == nil
}

// named returns the name, and the keys, of the lock at key.
func (s keyspace) named(key string) (ks keys, name string, ok bool) {
	if name, ok = s.nameOf(key); !ok {
		return keys{}, "", false
	}
	ks, err := s.keysOf(name)
	return ks, name, err == nil
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

// taken are what a prefix must not begin with: the keys of its clients would be taken for
// those of clients without a prefix.
var taken = append([]string{"lock:", recordPrefix, "fencelock:"}, companions[:]...)

// checkPrefix refuses a prefix that begins like a key of clients without one.
func checkPrefix(prefix string) error {
	for _, t := range taken {
		if strings.HasPrefix(prefix, t) {
			return fmt.Errorf("%w: the prefix %q begins with %q, as keys of clients without a prefix do; use another one", driver.ErrConfig, prefix, t)
		}
	}
	return nil
}

// markerKey is the key of the server's last known incarnation.
func (s keyspace) markerKey() string { return s.prefix + "fencelock:incarnation" }

// channel is what the names of the clients' channels begin with.
func (s keyspace) channel() string { return s.prefix + "fencelock:" }
