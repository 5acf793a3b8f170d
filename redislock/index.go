package redislock

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

const (
	// indexShards is the number of index keys on a Cluster.
	indexShards = 16
	// waitLife is how long the index keeps a name that somebody waits for.
	waitLife = time.Minute
)

// nameIndex writes this client's names to the index of names, and reads the index.
type nameIndex struct {
	client *client
	nameindex.Notes
}

func newNameIndex(c *client, matters func(nameindex.Noted) bool) *nameIndex {
	x := &nameIndex{client: c}
	x.Tasks, x.AtClose, x.Matters, x.Write = c.tasks, closeLimit, matters, x.write
	return x
}

// write adds names to the index.
func (x *nameIndex) write(ctx context.Context, due map[string]time.Duration) (refused bool) {
	args := map[string][]string{}
	for name, life := range due {
		key := x.client.indexOf(name)
		args[key] = append(args[key], redisfmt.Millis(life), name)
	}
	replies := x.client.conn.Eval(ctx, chunked(indexScript, 2*nameindex.Size, args))
	return slices.ContainsFunc(replies, func(r redisconn.Reply) bool { return redisconn.Denied(r.Err) })
}

// chunked splits each key's arguments into calls of at most size arguments. Each call starts with
// begin.
func chunked(s *redisconn.Script, size int, args map[string][]string, begin ...string) (calls []redisconn.Call) {
	for key, all := range args {
		for part := range slices.Chunk(all, size) {
			calls = append(calls, redisconn.Call{Script: s, Keys: []string{key}, Args: append(slices.Clone(begin), part...)})
		}
	}
	return calls
}

// indexOf returns the key of the index that contains a name.
func (s keyspace) indexOf(name string) string {
	if !s.cluster() {
		return s.indexKey(-1)
	}
	return s.indexKey(slotOf(name) % indexShards)
}

// indexKey returns the key of a shard, or of the whole index if shard is negative.
func (s keyspace) indexKey(shard int) string {
	key := s.prefix + "fencelock:names"
	if shard < 0 {
		return key
	}
	return key + ":{" + strconv.Itoa(shard) + "}"
}

// read collects the matching names of the index.
func (x *nameIndex) read(ctx context.Context, q driver.Query, found map[string]bool) error {
	first, last := -1, 0
	if x.client.cluster() {
		first, last = 0, indexShards
	}
	var calls []redisconn.Call
	for shard := first; shard < last; shard++ {
		calls = append(calls, redisconn.Call{Script: indexNamesScript, Keys: []string{x.client.indexKey(shard)}, Args: []string{"0"}})
	}
	for len(calls) > 0 {
		var rest []redisconn.Call
		for i, r := range x.client.conn.Eval(redisconn.WithDeadline(ctx, x.client.cfg.RetryTimeout), calls) {
			if r.Err != nil {
				return r.Err
			}
			if next := nameindex.Page(r.Text, q, found); next != "0" {
				rest = append(rest, redisconn.Call{Script: indexNamesScript, Keys: calls[i].Keys, Args: []string{next}})
			}
		}
		calls = rest
	}
	return nil
}

// drop removes names from the index that were free at server time at.
func (x *nameIndex) drop(ctx context.Context, free []string, at int64) {
	args := map[string][]string{}
	for _, name := range free {
		key := x.client.indexOf(name)
		args[key] = append(args[key], name)
	}
	x.client.conn.Eval(redisconn.WithDeadline(ctx, attemptLimit(0)), chunked(indexDropScript, nameindex.Size, args, nameindex.FreeUntil(at)))
}
