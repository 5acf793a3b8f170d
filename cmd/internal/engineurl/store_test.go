//go:build unix

package engineurl_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
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

// TestUnreachableStore: an error of a store names its servers, and not the password.
func TestUnreachableStore(t *testing.T) {
	open := func(engineurl.Store) (engineurl.Records, func(), error) {
		return nil, nil, fmt.Errorf("%w: hunter2: no answer", driver.ErrUnavailable)
	}
	part, err := engineurl.StorePart(parse(t, "etcd://u:hunter2@h1,h2"), open, "mine")
	if err != nil {
		t.Fatal(err)
	}
	_, err = part.Count(t.Context())
	if text := fmt.Sprint(err); !strings.Contains(text, "h1:2379,h2:2379: ") || strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}

// created are records that need not be created.
type created struct{ driver.Records }

func (created) Init(context.Context) error { return nil }

// TestPartOfAStore: a part is the locks whose names begin with its prefix.
func TestPartOfAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := memlock.New(nil).Records()
		locks := fencelock.New(recordlock.New(records, nil), nil)
		for _, name := range []string{"mine", "mine too", "theirs"} {
			if err := locks.Do(t.Context(), name, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		closed := 0
		open := func(engineurl.Store) (engineurl.Records, func(), error) {
			return created{records}, func() { closed++ }, nil
		}
		part, err := engineurl.StorePart(parse(t, "etcd://h1,h2/path"), open, "mine")
		if err != nil || part.Names != "mine" || !slices.Equal(part.Hosts, []string{"h1:2379", "h2:2379"}) {
			t.Fatalf("%+v, %v", part, err)
		}
		if n, err := part.Count(t.Context()); n != 2 || err != nil {
			t.Errorf("the part has %d records, %v", n, err)
		}
		if n, err := part.Clear(t.Context()); n != 0 || err != nil {
			t.Errorf("%d records are left, %v", n, err)
		}
		if list, err := records.List(t.Context(), ""); len(list) != 1 || err != nil {
			t.Errorf("of the other records, %d are left, %v", len(list), err)
		}
		if closed != 3 {
			t.Errorf("%d of 3 connections were closed", closed)
		}
	})
}
