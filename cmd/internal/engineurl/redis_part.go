//go:build unix

package engineurl

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// redisPart returns a part of the keys. The part of a URL with a prefix begins with it.
func redisPart(u *url.URL, prefix string) (*Part, error) {
	q := withPrefix(u, prefix)
	target, err := parseRedis(u)
	if err != nil {
		return nil, err
	}
	p := keysPart(u, target.redisClient)
	p.New, p.Local = q.Get("quarantine") == "on", u.Scheme == "redis+unix"
	if target.cluster {
		p.Dead = DeadInTurn
	}
	if p.Local {
		p.Hosts = nil
	}
	return p, nil
}

// withPrefix adds a prefix to that of a URL.
func withPrefix(u *url.URL, prefix string) url.Values {
	q := u.Query()
	q.Set("prefix", q.Get("prefix")+prefix)
	u.RawQuery = q.Encode()
	return q
}

// keysPart returns the keys with the prefix of a URL on servers.
func keysPart(u *url.URL, clients ...redisClient) *Part {
	p := &Part{URL: u.String(), Plain: clients[0].option.TLSConfig == nil, sweep: keys{clients, u.Query().Get("prefix")}.sweep}
	for _, c := range clients {
		p.Hosts = append(p.Hosts, c.option.InitAddress...)
	}
	return p
}

// keys are the keys of a prefix on servers of Redis.
type keys struct {
	clients []redisClient
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
		client, err := c.connect(ctx)
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
			return n, errors.New(c.hide(err.Error()))
		}
	}
	return n, nil
}
