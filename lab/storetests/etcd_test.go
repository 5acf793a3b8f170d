//go:build unix

package storetests_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/etcdrecords"
)

// dialEtcd returns a client with the settings that the documentation recommends.
func dialEtcd(addrs []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addrs, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second, Logger: zap.NewNop(),
	})
}

// startEtcd starts a cluster, and waits until it answers.
func startEtcd(t hosttest.TB, members int) *cluster {
	t.Helper()
	c := startCluster(t, "etcd", members)
	for _, m := range c.members {
		client, err := dialEtcd([]string{m.addr()})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the member answers", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := client.Get(ctx, "ready")
			return err == nil
		})
		_ = client.Close()
	}
	return c
}

// etcdClient returns a client that is closed with the test.
func etcdClient(t testing.TB, addrs []string) *clientv3.Client {
	t.Helper()
	client, err := dialEtcd(addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func openEtcd(t testing.TB, c *cluster, name string) driver.Records {
	t.Helper()
	return etcdrecords.New(etcdClient(t, c.addrs()), &etcdrecords.Config{Prefix: name + "/"})
}

// openEtcdLocks opens locks in a child: where is the addresses, a space and a name.
func openEtcdLocks(where string) driver.Engine {
	addrs, name, _ := strings.Cut(where, " ")
	client, err := dialEtcd(strings.Split(addrs, ","))
	if err != nil {
		panic(err)
	}
	records := etcdrecords.New(client, &etcdrecords.Config{Prefix: name + "/"})
	return closing{recordlock.New(records, nil), func() { _ = client.Close() }}
}

// put stores a value from a version, and fails the test on an error.
func put(t testing.TB, r driver.Records, key, value, version string, ttl time.Duration) string {
	t.Helper()
	next, err := r.Swap(t.Context(), key, []byte(value), version, ttl)
	if err != nil {
		t.Fatalf("Swap(%q) from version %q: %v", key, version, err)
	}
	return next
}

// TestOddVersions: a version that no record has had is a conflict, also if it is a number that a store
// uses for something else.
func TestOddVersions(t *testing.T) {
	forEach(t, func(t *testing.T, s store) {
		r := s.open(t, s.start(t, 1), "odd")
		for _, version := range []string{"0", "00", "-1", "1.5", "x", "18446744073709551615", "9223372036854775807"} {
			if next, err := r.Swap(t.Context(), "key", nil, version, 0); !errors.Is(err, driver.ErrConflict) {
				t.Errorf("from version %q: %q, %v", version, next, err)
			}
		}
	})
}

// TestLeasesAreShared: records with a TTL share leases of etcd. One that has been revoked is replaced.
func TestLeasesAreShared(t *testing.T) {
	t.Parallel()
	c := startEtcd(t, 1)
	r, client := openEtcd(t, c, "leases"), etcdClient(t, c.addrs())
	version := ""
	for range 50 {
		version = put(t, r, "key", "value", version, 24*time.Hour)
		put(t, r, "other "+version, "value", "", 23*time.Hour+59*time.Minute)
	}
	list, err := client.Leases(t.Context())
	if err != nil || len(list.Leases) != 1 {
		t.Fatalf("leases: %+v, %v", list, err)
	}
	left, err := client.TimeToLive(t.Context(), list.Leases[0].ID, clientv3.WithAttachedKeys())
	if err != nil || left.GrantedTTL < 24*3600 || left.GrantedTTL > 24*3600*17/16 || len(left.Keys) != 51 {
		t.Errorf("%d keys for %d s, %v", len(left.Keys), left.GrantedTTL, err)
	}
	if _, err := client.Revoke(t.Context(), list.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Swap(t.Context(), "key", nil, version, 0); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("from the version of a record that has expired: %v", err)
	}
	put(t, r, "key", "value", "", 24*time.Hour)
}

// TestCompaction: Await needs no revision that etcd has compacted.
func TestCompaction(t *testing.T) {
	t.Parallel()
	c := startEtcd(t, 1)
	r, client := openEtcd(t, c, "part").(driver.Awaiter), etcdClient(t, c.addrs())
	version := put(t, r, "key", "old", "", 0)
	last := put(t, r, "other", "", "", 0)
	last = put(t, r, "other", "", last, 0)
	revision, _ := strconv.ParseInt(last, 10, 64)
	if _, err := client.Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	changed := make(chan driver.Record)
	go func() { // ends with the change
		rec, err := r.Await(t.Context(), "key", version)
		if err != nil {
			t.Error(err)
		}
		changed <- rec
	}()
	select {
	case rec := <-changed:
		t.Errorf("Await returned %+v while the record was unchanged", rec)
	case <-time.After(100 * time.Millisecond):
	}
	next := put(t, r, "key", "new", version, 0)
	if rec := <-changed; rec.Version != next || string(rec.Value) != "new" {
		t.Errorf("Await returned %+v, want version %s", rec, next)
	}
}

// TestFrozenMember: while a member is frozen, reads reach another one.
func TestFrozenMember(t *testing.T) {
	t.Parallel()
	c := startEtcd(t, 3)
	r := openEtcd(t, c, "part")
	put(t, r, "key", "value", "", 0)
	for _, m := range c.members[1:] {
		m.freeze(t)
		eventually(t, "the other members have a leader", func() bool {
			_, err := r.Get(t.Context(), "key")
			return err == nil
		})
		for range 4 {
			if rec, err := r.Get(t.Context(), "key"); err != nil || rec.Version == "" {
				t.Errorf("while %s is frozen: %+v, %v", m.Name, rec, err)
			}
		}
		m.thaw(t)
	}
}

// TestRights: a user needs a role with readwrite permission for the prefix. Without it, calls return
// ErrConfig.
func TestRights(t *testing.T) {
	t.Parallel()
	c := startEtcd(t, 1)
	admin := etcdClient(t, c.addrs())
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(admin.RoleAdd(t.Context(), "locks"))
	do(admin.RoleGrantPermission(t.Context(), "locks", "mine/", clientv3.GetPrefixRangeEnd("mine/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	do(admin.UserAdd(t.Context(), "app", "secret"))
	do(admin.UserGrantRole(t.Context(), "app", "locks"))
	do(admin.UserAdd(t.Context(), "root", "secret"))
	do(admin.UserGrantRole(t.Context(), "root", "root"))
	do(admin.AuthEnable(t.Context()))
	client, err := clientv3.New(clientv3.Config{Endpoints: c.addrs(), Username: "app", Password: "secret", Logger: zap.NewNop()})
	do(nil, err)
	t.Cleanup(func() { _ = client.Close() })
	mine := etcdrecords.New(client, &etcdrecords.Config{Prefix: "mine/"})
	do(nil, mine.Init(t.Context()))
	version := put(t, mine, "key", "value", "", time.Hour)
	locks := fencelock.New(recordlock.New(mine, nil), nil)
	do(nil, locks.Do(t.Context(), "name", func(context.Context) error { return nil }))
	for name, r := range map[string]*etcdrecords.Records{
		"another prefix": etcdrecords.New(client, &etcdrecords.Config{Prefix: "other/"}),
		"no user":        etcdrecords.New(admin, &etcdrecords.Config{Prefix: "mine/"}),
	} {
		_, get := r.Get(t.Context(), "key")
		_, swap := r.Swap(t.Context(), "key", nil, version, 0)
		_, list := r.List(t.Context(), "")
		for _, err := range []error{r.Init(t.Context()), get, swap, list} {
			if !errors.Is(err, driver.ErrConfig) {
				t.Errorf("%s: got %v, want ErrConfig", name, err)
			}
		}
	}
}
