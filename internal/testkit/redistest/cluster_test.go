package redistest_test

import (
	"strconv"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

func TestRedisClusterSlots(t *testing.T) {
	t.Parallel()
	var c redistest.RedisCluster
	r := redistest.StartRedis(t, "--cluster-enabled", "yes")
	for _, key := range []string{"", "a", "{a}b", "b{a}", "{}a", "{a", "a}", "{{a}}b", "{}{a}", "x{ä}y"} {
		if got, want := strconv.Itoa(c.Slot(key)), r.Do(t, "CLUSTER", "KEYSLOT", key); got != want {
			t.Errorf("slot of %q: %s, the server says %s", key, got, want)
		}
	}
}
