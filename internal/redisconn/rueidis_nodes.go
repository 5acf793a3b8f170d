package redisconn

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// scanCount is how many keys one SCAN visits, which takes the server well under a millisecond.
const scanCount = "1000"

// Scan implements Conn.
func (c *rueidisConn) Scan(ctx context.Context, limit time.Duration, match string, fn func(keys []string) error) error {
	nodes, err := c.masters(Within(ctx, limit))
	if err != nil {
		return err
	}
	for _, node := range nodes {
		for cursor := uint64(0); ; {
			limited := Within(ctx, limit)
			result := ask(limited, node.client, "SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", scanCount)
			entry, err := result.AsScanEntry()
			if err != nil {
				return Unreached(errorOf(limited, err), node.addr)
			}
			if len(entry.Elements) > 0 {
				if err := fn(entry.Elements); err != nil {
					return err
				}
			}
			if cursor = entry.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// Each implements Conn.
func (c *rueidisConn) Each(ctx context.Context, args ...string) ([]Answer, error) {
	nodes, err := c.masters(ctx)
	if err != nil {
		return nil, err
	}
	answers := make([]Answer, len(nodes))
	var asked sync.WaitGroup
	for i, node := range nodes {
		asked.Go(func() { answers[i] = node.answer(ctx, args) }) // ends with ctx at the latest
	}
	asked.Wait()
	return answers, nil
}

func (n rueidisNode) answer(ctx context.Context, args []string) Answer {
	ask := ask
	if IsFresh(ctx) {
		ask = askFresh
	}
	m, err := ask(ctx, n.client, args...).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return Answer{Node: n.addr, Err: Unreached(errorOf(ctx, err), n.addr)}
	}
	return Answer{Node: n.addr, Text: strings.Join(flatten(nil, m), "\n")}
}

// rueidisNode is one server.
type rueidisNode struct {
	addr   string
	client rueidis.Client
}

// masters returns the servers that accept writes, ordered by address.
func (c *rueidisConn) masters(ctx context.Context) ([]rueidisNode, error) {
	clients := c.client.Nodes()
	if c.Cluster() {
		slots, err := slotsOf(ctx, clients)
		if err != nil {
			return nil, c.Unreached(errorOf(ctx, err))
		}
		keepMasters(clients, slots)
	}
	var nodes []rueidisNode
	for _, addr := range slices.Sorted(maps.Keys(clients)) {
		if len(clients) > 1 && !c.Cluster() && isReplica(ctx, clients[addr]) {
			continue
		}
		nodes = append(nodes, rueidisNode{addr, clients[addr]})
	}
	return nodes, nil
}

// slotsOf asks all nodes of a Cluster for its slots and returns the first answer, since some nodes
// may be unreachable.
func slotsOf(ctx context.Context, clients map[string]rueidis.Client) (slots []rueidis.RedisMessage, err error) {
	answers := make(chan rueidis.RedisResult, len(clients))
	for _, client := range clients {
		go func() { answers <- ask(ctx, client, "CLUSTER", "SLOTS") }() // ends with ctx at the latest
	}
	for range clients {
		result := <-answers
		if slots, err = result.ToArray(); err == nil {
			return slots, nil
		}
	}
	return nil, err
}

// keepMasters removes clients of nodes that are not masters according to CLUSTER SLOTS. If no
// address matches, because a proxy rewrites them, it removes nothing.
func keepMasters(clients map[string]rueidis.Client, slots []rueidis.RedisMessage) {
	masters := map[string]bool{}
	for _, s := range slots {
		part, _ := s.ToArray()
		if len(part) < 3 {
			continue
		}
		if node, _ := part[2].ToArray(); len(node) >= 2 {
			host, _ := node[0].ToString()
			port, _ := node[1].AsInt64()
			masters[net.JoinHostPort(host, strconv.FormatInt(port, 10))] = true
		}
	}
	for addr := range clients {
		if masters[addr] {
			maps.DeleteFunc(clients, func(addr string, _ rueidis.Client) bool { return !masters[addr] })
			return
		}
	}
}

// isReplica asks a server for its role. A server that does not return one counts as a master.
func isReplica(ctx context.Context, client rueidis.Client) bool {
	role, err := ask(ctx, client, "ROLE").ToArray()
	if err != nil || len(role) == 0 {
		return false
	}
	name, _ := role[0].ToString()
	return name == "slave"
}

// ask sends one command without keys. It does not retry.
func ask(ctx context.Context, client rueidis.Client, args ...string) rueidis.RedisResult {
	ctx, cancel := Timed(ctx)
	defer cancel()
	cmd := client.B().Arbitrary(args...).Build()
	return Promptly(ctx, func() rueidis.RedisResult { return client.Do(noDeadline{ctx}, cmd) }, rueidis.NewErrorResult)
}

// askFresh sends a command to one server on a new connection.
func askFresh(ctx context.Context, client rueidis.Client, args ...string) rueidis.RedisResult {
	cmd := client.B().Arbitrary(args...).Build()
	return onNew(ctx, client, func(ctx context.Context, conn rueidis.DedicatedClient) rueidis.RedisResult {
		return conn.Do(ctx, cmd)
	}, rueidis.NewErrorResult)
}

// flatten appends the elements of an answer. Maps are ordered by key.
func flatten(lines []string, m rueidis.RedisMessage) []string {
	switch {
	case m.IsMap():
		all, _ := m.ToMap()
		for _, key := range slices.Sorted(maps.Keys(all)) {
			lines = flatten(append(lines, key), all[key])
		}
	case m.IsArray():
		all, _ := m.ToArray()
		for _, e := range all {
			lines = flatten(lines, e)
		}
	case m.IsInt64():
		n, _ := m.ToInt64()
		lines = append(lines, strconv.FormatInt(n, 10))
	default:
		text, _ := m.ToString()
		lines = append(lines, text)
	}
	return lines
}
