package redislock

import (
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// keys are the keys of one name.
type keys []string

const (
	lockKey = iota
	fenceKey
	queueKey
	aliveKey
	sharedKey
	metaKey
)

// companions are the prefixes of the keys beside the lock's own.
var companions = [...]string{"fence:", "queue:", "alive:", "shared:", "meta:"}

// keysOf returns the keys of a name. The lock's own is the one that plain SET NX
// locks of other programs use; the others are prefixed and lie in the same slot.
func (e *Engine) keysOf(name string) (keys, error) {
	lock := e.cfg.Prefix + "lock:" + name
	tag := lock
	if !hasTag(lock) {
		if e.conn.Cluster() && strings.Contains(lock, "}") {
			return nil, fmt.Errorf("%w: on a Redis Cluster %q cannot keep its keys in one slot: it has a } and no hash tag; leave the } out", driver.ErrInvalid, name)
		}
		tag = "{" + lock + "}"
	}
	ks := make(keys, 1, 1+len(companions))
	ks[lockKey] = lock
	all := strings.Join(companions[:], tag) + tag // one allocation for five keys
	for _, c := range companions {
		n := len(c) + len(tag)
		ks, all = append(ks, all[:n]), all[n:]
	}
	return ks, nil
}

// nameOf returns the name whose lock, or whose companion, is at key.
func (e *Engine) nameOf(key string) (string, bool) {
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
	name, ok := strings.CutPrefix(lock, e.cfg.Prefix+"lock:")
	return name, ok && driver.CheckName(name) == nil
}

// named returns the name, and the keys, of the lock at key.
func (e *Engine) named(key string) (ks keys, name string, ok bool) {
	if name, ok = e.nameOf(key); !ok {
		return nil, "", false
	}
	ks, err := e.keysOf(name)
	return ks, name, err == nil
}

// hasTag reports whether Redis Cluster hashes only a part of the key: what is
// between the first { and the next }, unless that is empty.
func hasTag(key string) bool {
	_, after, ok := strings.Cut(key, "{")
	return ok && strings.Index(after, "}") > 0
}

// marker is the key of the server's last known incarnation.
func (e *Engine) marker() string { return e.cfg.Prefix + "fencelock:incarnation" }

// channel is what the names of the clients' channels begin with.
func (e *Engine) channel() string { return e.cfg.Prefix + "fencelock:" }
