//go:build unix

package storetests_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/natsrecords"
)

// dialNATS connects, and reconnects as long as the connection is not closed.
func dialNATS(addrs []string) (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(strings.Join(addrs, ","), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.Timeout(time.Second), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.IgnoreDiscoveredServers(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn)
	return conn, js, err
}

// startNATS starts a cluster, and waits until it has elected a leader.
func startNATS(t hosttest.TB, members int) *cluster {
	t.Helper()
	c := startCluster(t, "nats", members)
	for _, m := range c.members {
		conn, js, err := dialNATS([]string{m.addr()})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the member answers", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := js.AccountInfo(ctx)
			return err == nil
		})
		conn.Close()
	}
	return c
}

// jetStream returns a client that is closed with the test.
func jetStream(t testing.TB, addrs []string) jetstream.JetStream {
	t.Helper()
	conn, js, err := dialNATS(addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return js
}

// bucket returns a valid name of a bucket.
func bucket(name string) string { return fmt.Sprintf("b%08x", crc32.ChecksumIEEE([]byte(name))) }

func openNATS(t testing.TB, c *cluster, name string) driver.Records {
	t.Helper()
	records := natsrecords.New(jetStream(t, c.addrs()), bucket(name), &natsrecords.Config{Replicas: len(c.members)})
	eventually(t, "the bucket exists", func() bool { return records.Init(t.Context()) == nil })
	return records
}

// openNATSLocks opens locks in a child: where is the addresses, a space and a name.
func openNATSLocks(where string) driver.Engine {
	addrs, name, _ := strings.Cut(where, " ")
	conn, js, err := dialNATS(strings.Split(addrs, ","))
	if err != nil {
		panic(err)
	}
	return closing{recordlock.New(natsrecords.New(js, bucket(name), nil), nil), conn.Close}
}

// TestDeletedByHand: a record that was deleted or purged is not there, and can be created again.
func TestDeletedByHand(t *testing.T) {
	t.Parallel()
	c := startNATS(t, 1)
	r, js := openNATS(t, c, "part"), jetStream(t, c.addrs())
	kv, err := js.KeyValue(t.Context(), bucket("part"))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+bucket("part"))
	if err != nil {
		t.Fatal(err)
	}
	version := put(t, r, "a key", "value", "", 0)
	for name, remove := range map[string]func() error{
		"delete": func() error { return kv.Delete(t.Context(), "a=20key") },
		"purge":  func() error { return kv.Purge(t.Context(), "a=20key") },
		"all":    func() error { return stream.Purge(t.Context()) },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		rec, err := r.Get(t.Context(), "a key")
		list, err2 := r.List(t.Context(), "")
		if err := errors.Join(err, err2); err != nil || rec.Version != "" || len(list) != 0 {
			t.Errorf("after %s: %+v, %+v, %v", name, rec, list, err)
		}
		if _, err := r.Swap(t.Context(), "a key", nil, version, 0); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("after %s, from the version before: %v", name, err)
		}
		next := put(t, r, "a key", "value", "", time.Hour)
		if next == version {
			t.Errorf("after %s, version %s returned", name, next)
		}
		version = next
	}
}

// TestBucketIsCreatedAgain: versions do not return if a bucket is deleted and created again.
func TestBucketIsCreatedAgain(t *testing.T) {
	t.Parallel()
	c := startNATS(t, 1)
	js := jetStream(t, c.addrs())
	first := put(t, openNATS(t, c, "part"), "key", "value", "", 0)
	if err := js.DeleteKeyValue(t.Context(), bucket("part")); err != nil {
		t.Fatal(err)
	}
	r := natsrecords.New(js, bucket("part"), nil)
	if _, err := r.Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "Init creates it") {
		t.Errorf("without a bucket: %v", err)
	}
	if err := r.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := put(t, r, "key", "value", "", 0)
	if len(second) != len(first) || second <= first {
		t.Errorf("version %s came after %s", second, first)
	}
}

// TestUnfitBuckets: a bucket that may lose records is refused.
func TestUnfitBuckets(t *testing.T) {
	t.Parallel()
	js := jetStream(t, startNATS(t, 1).addrs())
	fit := jetstream.StreamConfig{
		Subjects: []string{""}, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true,
		AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Minute,
	}
	for name, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		want   string // empty if the bucket is fit
	}{
		"fit":     {func(*jetstream.StreamConfig) {}, ""},
		"max-age": {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, "TTL for all records"},
		"memory":  {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "in memory"},
		"discard": {func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, "discards"},
		"no-ttl":  {func(c *jetstream.StreamConfig) { c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = false, 0 }, "no TTLs"},
		"direct":  {func(c *jetstream.StreamConfig) { c.AllowDirect = true }, "direct reads"},
	} {
		config := fit
		config.Name, config.Subjects = "KV_"+name, []string{"$KV." + name + ".>"}
		c.change(&config)
		if _, err := js.CreateStream(t.Context(), config); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := natsrecords.New(js, name, nil)
		_, get := r.Get(t.Context(), "key")
		for _, err := range []error{get, r.Init(t.Context())} {
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
		}
	}
}

// TestDomain: the records work in a domain of JetStream.
func TestDomain(t *testing.T) {
	t.Parallel()
	c := startNATS(t, 1)
	conn := jetStream(t, c.addrs()).Conn()
	js, err := jetstream.NewWithDomain(conn, natsDomain)
	if err != nil {
		t.Fatal(err)
	}
	r := natsrecords.New(js, "part", nil)
	if err := r.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	version := put(t, r, "key", "value", "", time.Hour)
	if rec, err := r.Await(t.Context(), "key", ""); err != nil || rec.Version != version {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestRightsInNATS: the rights that the documentation names are enough.
func TestRightsInNATS(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/engines/nats.md")
	if err != nil {
		t.Fatal(err)
	}
	may := []string{"$KV.locks.>"}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "$JS.") {
			may = append(may, strings.TrimSpace(line))
		}
	}
	dir := hosttest.Dir(t, "fencelock-nats-")
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
		Users: []*server.User{
			{Username: "admin", Password: "secret"},
			{Username: "app", Password: "secret", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: may}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	eventually(t, "the server accepts connections", func() bool { return s.ReadyForConnections(time.Second) })
	var violation atomic.Value
	as := func(user string) *natsrecords.Records {
		conn, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "secret"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violation.Store(err) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		return natsrecords.New(js, "locks", nil)
	}
	if err := as("admin").Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := as("app")
	version := put(t, r, "key", "value", "", time.Hour)
	rec, err := r.Await(t.Context(), "key", "")
	list, err2 := r.List(t.Context(), "")
	_, _, err3 := r.Clock(t.Context())
	if err := errors.Join(err, err2, err3); err != nil || rec.Version != version || len(list) != 1 {
		t.Errorf("%+v, %+v, %v", rec, list, err)
	}
	first, second := fencelock.New(recordlock.New(r, nil), nil), fencelock.New(recordlock.New(as("app"), nil), nil)
	for range 3 {
		if err := first.Do(t.Context(), "name", func(ctx context.Context) error { _, err := second.TryAcquire(ctx, "name"); return err }); !errors.Is(err, fencelock.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
	}
	if err := violation.Load(); err != nil {
		t.Errorf("the server reports %v", err)
	}
}
