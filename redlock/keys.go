package redlock

import (
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// companions are the prefixes of the keys beside the lock's own.
var companions = [...]string{"fence:", "shared:", "tokens:", "about:", "queue:", "callers:"}

// keysOf returns the key that the scripts get for a name. They make the
// companions' names themselves, for the sake of speed: a node of redlock is no
// part of a cluster.
func (e *Engine) keysOf(name string) []string { return []string{e.cfg.Prefix + "lock:" + name} }

// nameOf returns the name whose lock, or whose companion, is at key.
func (e *Engine) nameOf(key string) (string, bool) {
	for _, c := range companions {
		if inner, ok := strings.CutPrefix(key, c+"{"); ok && strings.HasSuffix(inner, "}") {
			key = inner[:len(inner)-1]
			break
		}
	}
	name, ok := strings.CutPrefix(key, e.cfg.Prefix+"lock:")
	return name, ok && driver.CheckName(name) == nil
}
