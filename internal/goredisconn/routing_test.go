package goredisconn_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// TestCallsAskOnlyTheirMaster: for a call no other node is asked. The client would ask any node
// for COMMAND, with all calls waiting for the answer, and that node may be silent.
func TestCallsAskOnlyTheirMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	conn := connOf(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}))
	calls := []redisconn.Call{{Script: redisconn.NewScript("return 'x'"), Keys: []string{"k"}}}
	if r := conn.Eval(t.Context(), calls)[0]; r.Err != nil || r.Text != "x" {
		t.Fatal(r)
	}
	for _, node := range c.Nodes() {
		if strings.Contains(node.Do(t, "INFO", "commandstats"), "cmdstat_command:") {
			t.Errorf("%s was asked for COMMAND", node.Addr())
		}
	}
}
