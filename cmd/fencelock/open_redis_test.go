//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock/redislock"
)

// reading is what matters of a target.
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
	u, err := parseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseRedis(u)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	c := r.client
	return reading{
		Addrs: c.InitAddress, User: c.Username, Password: c.Password, DB: c.SelectDB, Master: c.Sentinel.MasterSet,
		SentinelUser: c.Sentinel.Username, TLS: c.TLSConfig != nil, Single: c.ForceSingleClient,
		Timeout: c.Dialer.Timeout, Engine: r.engine,
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
