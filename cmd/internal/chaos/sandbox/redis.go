//go:build unix

package sandbox

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// ofRedis returns the keys with a prefix. The sandbox of a URL with a prefix begins with it.
func ofRedis(u *url.URL, r *engineurl.Redis, prefix string) *Sandbox {
	s := ofKeys(u, prefix, r.RedisClient)
	s.New, s.Local = r.Engine.Quarantine, u.Scheme == "redis+unix"
	if r.Cluster {
		s.Dead = DeadInTurn
	}
	if s.Local {
		s.Hosts = nil
	}
	return s
}

// ofRedlock returns the keys with a prefix on all servers.
func ofRedlock(u *url.URL, r *engineurl.Redlock, prefix string) *Sandbox {
	var clients []engineurl.RedisClient
	for _, addr := range r.Engine.Nodes {
		client := r.RedisClient
		client.Option.InitAddress = []string{addr}
		clients = append(clients, client)
	}
	s := ofKeys(u, prefix, clients...)
	s.New = true
	return s
}

// ofKeys adds a prefix to that of a URL. It returns the keys with both on servers.
func ofKeys(u *url.URL, prefix string, clients ...engineurl.RedisClient) *Sandbox {
	q := u.Query()
	q.Set("prefix", q.Get("prefix")+prefix)
	u.RawQuery = q.Encode()
	s := &Sandbox{URL: u.String(), Plain: clients[0].Option.TLSConfig == nil, sweep: keys{clients, q.Get("prefix")}.sweep}
	for _, c := range clients {
		s.Hosts = append(s.Hosts, c.Option.InitAddress...)
	}
	return s
}

// keys are the keys of a prefix on servers of Redis.
type keys struct {
	clients []engineurl.RedisClient
	prefix  string
}

// has reports whether a key has the prefix. Redlock stores more about the key KEY of a lock under
// names such as fence:{KEY}.
func (k keys) has(key string) bool {
	_, inBraces, _ := strings.Cut(key, ":{")
	return strings.HasPrefix(key, k.prefix) || strings.HasPrefix(inBraces, k.prefix)
}

func (k keys) sweep(ctx context.Context, remove bool) (n int, err error) {
	for _, c := range k.clients {
		client, err := c.Connect(ctx)
		if err != nil {
			return n, err
		}
		defer client.Close()
		err = redisconn.Rueidis(client).Scan(ctx, 0, "*"+redisfmt.Literal(k.prefix)+"*", func(found []string) error {
			found = slices.DeleteFunc(found, func(key string) bool { return !k.has(key) })
			n += len(found)
			for _, key := range found { // one at a time: those of a cluster may be in several slots
				if !remove {
					break
				}
				if err := client.Do(ctx, client.B().Del().Key(key).Build()).Error(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return n, errors.New(c.Hide(err.Error()))
		}
	}
	return n, nil
}
