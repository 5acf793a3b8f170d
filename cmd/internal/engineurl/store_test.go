//go:build unix

package engineurl_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
)

func TestParseStore(t *testing.T) {
	for raw, want := range map[string]engineurl.Store{
		"etcd://h":                 {Addrs: []string{"h:2379"}},
		"etcd://h1,h2:1/a/b/":      {Addrs: []string{"h1:2379", "h2:1"}, Path: "a/b"},
		"etcd://u:p@h?timeout=3s":  {Addrs: []string{"h:2379"}, User: "u", Password: "p", Timeout: 3 * time.Second},
		"nats://token@h1,[::1]":    {Addrs: []string{"h1:4222", "[::1]:4222"}, User: "token"},
		"nats://h/b?replicas=3":    {Addrs: []string{"h:4222"}, Path: "b", Replicas: 3},
		"nats://h?creds=/etc/c.cr": {Addrs: []string{"h:4222"}, Credentials: "/etc/c.cr"},
	} {
		got, err := engineurl.ParseStore(parse(t, raw))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", raw, got, err, want)
		}
	}
	if s, err := engineurl.ParseStore(parse(t, "etcd://h?tls=on")); err != nil || s.TLS == nil {
		t.Errorf("with TLS: %+v, %v", s, err)
	}
}

func TestWrongStores(t *testing.T) {
	for raw, want := range map[string]string{
		"etcd://":                "no host",
		"etcd:h":                 "cannot be understood",
		"etcd://h1,,h2":          "no host",
		"etcd://h:99999":         "port",
		"etcd://h?replicas=3":    "unknown parameter replicas",
		"etcd://h?timeout=1ms":   "timeout=1ms",
		"etcd://h?ca=/etc/ca":    "need tls=on",
		"etcd://h?tls=yes":       "the only value is tls=on",
		"nats://h/b?replicas=x":  "replicas=x",
		"nats://h/u:p@w":         "cannot be understood",
		"nats://h?cert=a&tls=on": "cert and key",
	} {
		if s, err := engineurl.ParseStore(parse(t, raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want an error with %q", raw, s, err, want)
		}
	}
}
