//go:build unix

package engineurl_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/redislock"
)

// reading has the fields of a parsed URL that the tests compare.
type reading struct {
	Addrs          []string
	User, Password string
	DB             int
	Master         string
	SentinelUser   string
	TLS, Single    bool
	Timeout        time.Duration
	Engine         redislock.Config
}

func readRedis(t *testing.T, raw string) reading {
	t.Helper()
	c, engine, err := engineurl.ParseRedis(parse(t, raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return reading{
		Addrs: c.InitAddress, User: c.Username, Password: c.Password, DB: c.SelectDB, Master: c.Sentinel.MasterSet,
		SentinelUser: c.Sentinel.Username, TLS: c.TLSConfig != nil, Single: c.ForceSingleClient,
		Timeout: c.Dialer.Timeout, Engine: engine,
	}
}

func TestParseRedis(t *testing.T) {
	const usual = 3 * time.Second
	for raw, want := range map[string]reading{
		"redis://h":                 {Addrs: []string{"h:6379"}, Single: true, Timeout: usual},
		"redis://h:1/":              {Addrs: []string{"h:1"}, Single: true, Timeout: usual},
		"redis://[::1]/7":           {Addrs: []string{"[::1]:6379"}, DB: 7, Single: true, Timeout: usual},
		"redis://[::1]:1":           {Addrs: []string{"[::1]:1"}, Single: true, Timeout: usual},
		"redis://:a%2Fb%40@h":       {Addrs: []string{"h:6379"}, Password: "a/b@", Single: true, Timeout: usual},
		"rediss://u:p@h?timeout=1s": {Addrs: []string{"h:6379"}, User: "u", Password: "p", TLS: true, Single: true, Timeout: time.Second},
		"redis+unix:///run/r.sock?db=2": {
			Addrs: []string{"/run/r.sock"}, DB: 2, Single: true, Timeout: usual},
		"redis+sentinel://u:p@h1:1,h2,[::1]/m/4?sentinel-user=s&tls=on": {
			Addrs: []string{"h1:1", "h2:26379", "[::1]:26379"}, User: "u", Password: "p", Master: "m", DB: 4,
			SentinelUser: "s", TLS: true, Timeout: usual},
		"redis+cluster://h1:1,h2": {Addrs: []string{"h1:1", "h2:6379"}, Timeout: usual},
		"redis://h?quarantine=on&max-ttl=1m&replica-lag=10s&marker-life=720h&retention=1h&eviction=allow&min-replicas=2&prefix=a:": {
			Addrs: []string{"h:6379"}, Single: true, Timeout: usual,
			Engine: redislock.Config{Quarantine: true, MaxTTL: time.Minute, ReplicaLag: 10 * time.Second, MarkerLife: 720 * time.Hour, Retention: time.Hour, AllowEviction: true, MinReplicas: 2, Prefix: "a:"}},
	} {
		if d := cmp.Diff(want, readRedis(t, raw)); d != "" {
			t.Errorf("%s (-want +got):\n%s", raw, d)
		}
	}
}

// TestSentinelsAreReachedAsTheMaster: the timeout and TLS of a URL apply to its Sentinels, too.
func TestSentinelsAreReachedAsTheMaster(t *testing.T) {
	c, _, err := engineurl.ParseRedis(parse(t, "redis+sentinel://h1,h2,h3/m?tls=on&timeout=2s"))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Sentinel; s.TLSConfig == nil || s.TLSConfig != c.TLSConfig || s.Dialer.Timeout != 2*time.Second || s.Dialer.KeepAlive != c.Dialer.KeepAlive {
		t.Errorf("TLS %v, dialer %+v", s.TLSConfig, s.Dialer)
	}
	if c, _, _ = engineurl.ParseRedis(parse(t, "redis+sentinel://h1,h2,h3/m")); c.Sentinel.TLSConfig != nil {
		t.Error("TLS without tls=on")
	}
}

// TestRefusedRedis: a parameter that makes no sense, or that would suggest a protection that is not
// enabled, is refused, and the error says what to write instead.
func TestRefusedRedis(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h?max-ttl=1m":                   "max-ttl=1m: this has an effect with quarantine=on only; leave it out",
		"redis://h?replica-lag=1m":               "replica-lag=1m: this has an effect with quarantine=on only; leave it out",
		"redis://h?marker-life=1h":               "marker-life=1h: this has an effect with quarantine=on only; leave it out",
		"redis://h?quarantine=on&max-ttl=1ms":    "max-ttl=1ms: write a duration of at least 1s, such as 30s",
		"redis://h?quarantine=on&replica-lag=x":  "replica-lag=x: write a duration of at least 1s, such as 10s, the servers' min-replicas-max-lag",
		"redis://h?quarantine=on&marker-life=1s": "marker-life=1s: write a duration of at least 1m0s, such as 2160h",
		"redis://h?retention=1s":                 "retention=1s: write a duration of at least 1m0s, such as 168h",
		"redis://h?min-replicas=-1":              "min-replicas=-1: write a whole number of at least 0",
		"redis://h?eviction=yes":                 "eviction=yes: the only value is eviction=allow",
		"redis://h?timeout=1h":                   "timeout=1h: write a duration of at most 1m, such as 3s",
		"redis://h1,h2":                          "one server has one address; write several with redis+sentinel:// or redis+cluster://",
		"redis+cluster://h/1":                    "a cluster has no database numbers; leave out what follows the hosts",
		"redis+cluster://h?quarantine=on":        "quarantine=on: not available on a cluster; use redis+sentinel://, or guard the data with fencing tokens",
		"redis+sentinel://h":                     "the URL names no master; write redis+sentinel://h1,h2,h3/mymaster",
		"redis+unix://h/x":                       "write the absolute path of the socket: redis+unix:///run/redis.sock",
		"redis+cluster://h?ca=x":                 "ca, cert and key need tls=on",
		"rediss://h?cert=x":                      "cert and key go together; give both",
		"redis://h?prefix=":                      "parameter prefix has no value; write one, or leave it out",
		"redis://h?ttl=2s":                       "redis: unknown parameter ttl",
		"redis://h?timout=1s":                    "redis: unknown parameter timout; did you mean timeout?",
		"redis://h?timeout=1s&timeout=2s":        "parameter timeout is given 2 times",
		"redis://h:0":                            "the URL names a port that is not between 1 and 65535",
		"redis://h/x":                            "the database is not a number",
		"redis://u@h":                            "the URL names a user and no password; write user:password@, or :password@ for the default user",
	} {
		if _, _, err := engineurl.ParseRedis(parse(t, raw)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}
