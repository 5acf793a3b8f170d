package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/redis/go-redis/v9"
)

// scanCount is how many keys one SCAN visits, which takes the server well under a millisecond.
const scanCount = 1000

// master returns the server with the keys of a call, which are all in the slot of the first one.
func (c *conn) master(ctx context.Context, keys []string) (*redis.Client, error) {
	switch client := c.client.(type) {
	case *redis.Client:
		return client, nil
	case *redis.ClusterClient:
		if len(keys) > 0 {
			return client.MasterForKey(ctx, keys[0])
		}
	}
	return nil, errors.New("goredis: a call without keys has no server")
}

// masters returns the servers that accept writes, ordered by address.
func (c *conn) masters(ctx context.Context) ([]*redis.Client, error) {
	if client, ok := c.client.(*redis.Client); ok {
		return []*redis.Client{client}, nil
	}
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		return nil, c.refused
	}
	var mu sync.Mutex // guards nodes: the client calls the function concurrently
	var nodes []*redis.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	slices.SortFunc(nodes, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	return nodes, err
}

// listing is the result of masters.
type listing struct {
	nodes []*redis.Client
	err   error
}

// list is masters for calls that end with ctx: for a Cluster it sends a request.
func (c *conn) list(ctx context.Context) ([]*redis.Client, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	l := redisconn.Promptly(ctx, func() listing {
		nodes, err := c.masters(ctx)
		return listing{nodes, errorOf(ctx, err)}
	}, func(err error) listing { return listing{err: err} })
	return l.nodes, c.Unreached(l.err)
}

// page is the result of one SCAN. It may be empty although more follow.
type page struct {
	keys []string
	next uint64
	err  error
}

// Scan implements redisconn.Conn.
func (c *conn) Scan(ctx context.Context, limit time.Duration, match string, fn func(keys []string) error) error {
	nodes, err := c.list(redisconn.Within(ctx, limit))
	if err != nil {
		return err
	}
	for _, node := range nodes {
		for cursor := uint64(0); ; {
			timed, cancel := redisconn.Timed(redisconn.Within(ctx, limit))
			p := redisconn.Promptly(timed, func() page {
				keys, next, err := node.Scan(timed, cursor, match, scanCount).Result()
				return page{keys, next, errorOf(timed, err)}
			}, func(err error) page { return page{err: err} })
			cancel()
			if p.err != nil {
				return redisconn.Unreached(p.err, node.Options().Addr)
			}
			if len(p.keys) > 0 {
				if err := fn(p.keys); err != nil {
					return err
				}
			}
			if cursor = p.next; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// Each implements redisconn.Conn.
func (c *conn) Each(ctx context.Context, args ...string) ([]redisconn.Answer, error) {
	nodes, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	answers := make([]redisconn.Answer, len(nodes))
	var asked sync.WaitGroup
	for i, node := range nodes {
		asked.Go(func() { // ends with ctx at the latest
			answers[i] = redisconn.Promptly(ctx,
				func() redisconn.Answer { return answer(ctx, node, args) },
				func(err error) redisconn.Answer { return redisconn.Answer{Err: err} })
			answers[i].Node = node.Options().Addr
			answers[i].Err = redisconn.Unreached(answers[i].Err, answers[i].Node)
		})
	}
	asked.Wait()
	return answers, nil
}

// answer sends a command to one server. It does not retry: the caller must see failures.
func answer(ctx context.Context, node *redis.Client, args []string) redisconn.Answer {
	words := make([]any, len(args))
	for i, arg := range args {
		words[i] = arg
	}
	if redisconn.IsFresh(ctx) {
		node = renewed(node)
		defer func() { _ = node.Close() }()
	}
	cmd := once{redis.NewCmd(ctx, words...)}
	if err := node.Process(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
		return redisconn.Answer{Err: errorOf(ctx, err)}
	}
	return redisconn.Answer{Text: strings.Join(flatten(nil, cmd.Val()), "\n")}
}

// flatten appends the elements of an answer. Maps are ordered by key.
func flatten(lines []string, v any) []string {
	switch v := v.(type) {
	case nil:
		return append(lines, "")
	case []any:
		for _, e := range v {
			lines = flatten(lines, e)
		}
		return lines
	case map[any]any:
		texts := map[string]any{}
		var keys []string
		for key, e := range v {
			text := fmt.Sprint(key)
			texts[text] = e
			keys = append(keys, text)
		}
		slices.Sort(keys)
		for _, key := range keys {
			lines = flatten(append(lines, key), texts[key])
		}
		return lines
	}
	return append(lines, fmt.Sprint(v))
}
