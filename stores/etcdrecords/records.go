// Package etcdrecords stores records ([driver.Records]) in etcd 3.4 or later. Package recordlock
// makes locks of them, and packages such as idempotent and optimistic use them as they are:
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints: endpoints, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
//	})
//	if err != nil {
//		return err
//	}
//	locks := fencelock.New(recordlock.New(etcdrecords.New(client, nil), nil), nil)
//
// The application owns the client, and closes it. With these settings for keepalive, the client stops
// to use a host that does not answer after two seconds, and a frozen member after twelve.
//
// A record is a key with its value. Its version is the revision of its last change, and a Swap is
// one transaction. If authentication is on, a role needs readwrite permission for the prefix.
//
// Revisions start again where a backup ends, so versions would return. Restore with
// etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted.
//
// A record with a TTL is attached to a lease of etcd, which depends on no client's clock. Records of
// a process with similar TTLs share leases, so a record may remain for a sixteenth of its TTL longer,
// or for two seconds if that is more. When etcd has a new leader, TTLs start again.
//
// Clients cannot read etcd's clock: Clock returns ErrUnsupported. So packages cron and ratelimit,
// which need a clock, do not work on these records.
package etcdrecords

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/fencelock/fencelock/driver"
)

// Config holds the settings of Records.
type Config struct {
	// Prefix is put before all keys. Empty means "fencelock/".
	Prefix string

	// Timeout limits each request to a member of etcd. A read that is not answered in time is sent
	// to another member once. 0 means 2 seconds.
	Timeout time.Duration
}

// Records stores records in etcd. It is safe for concurrent use.
type Records struct {
	client *clientv3.Client
	prefix string
	limit  time.Duration
	leases leases
}

var _ driver.Awaiter = (*Records)(nil)

// New returns the records of a client of etcd; cfg may be nil. It does no I/O.
func New(client *clientv3.Client, cfg *Config) *Records {
	if cfg == nil {
		cfg = &Config{}
	}
	return &Records{
		client: client, prefix: cmp.Or(cfg.Prefix, "fencelock/"), limit: cmp.Or(cfg.Timeout, 2*time.Second),
		leases: leases{shared: map[int64]lease{}},
	}
}

// Init checks that etcd answers and that the client may read and write. It changes nothing, and etcd
// needs no set-up.
func (r *Records) Init(ctx context.Context) error {
	key := r.prefix + "init"
	never := clientv3.Compare(clientv3.Version(key), "<", 0)
	return r.call(ctx, func(ctx context.Context) error {
		_, err := r.client.Txn(ctx).If(never).Then(clientv3.OpPut(key, "")).Else(clientv3.OpGet(key)).Commit()
		return err
	})
}

// Get implements driver.Records. It reads the latest version from a majority of the members.
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	rec, _, err := r.read(ctx, key)
	return rec, err
}

// read returns a record, and the revision of etcd at which it was read.
func (r *Records) read(ctx context.Context, key string) (rec driver.Record, revision int64, err error) {
	resp, err := r.get(ctx, r.prefix+key)
	if err != nil {
		return driver.Record{}, 0, err
	}
	rec = driver.Record{Key: key}
	if len(resp.Kvs) > 0 {
		rec = r.record(resp.Kvs[0])
	}
	return rec, resp.Header.Revision, nil
}

// get reads keys. If a member does not answer, the client asks another one.
func (r *Records) get(ctx context.Context, key string, opts ...clientv3.OpOption) (resp *clientv3.GetResponse, err error) {
	for range 2 {
		err = r.call(ctx, func(ctx context.Context) (err error) {
			resp, err = r.client.Get(ctx, key, opts...)
			return err
		})
		if err == nil || ctx.Err() != nil || !errors.Is(err, driver.ErrUnavailable) {
			break
		}
	}
	return resp, err
}

// record returns the record of a key that exists.
func (r *Records) record(kv *mvccpb.KeyValue) driver.Record {
	return driver.Record{Key: string(kv.Key[len(r.prefix):]), Value: kv.Value, Version: strconv.FormatInt(kv.ModRevision, 10)}
}

// Swap implements driver.Records. The TTL counts from the call.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	unchanged := clientv3.Compare(clientv3.CreateRevision(r.prefix+key), "=", 0)
	if version != "" {
		revision, err := strconv.ParseInt(version, 10, 64)
		if err != nil || revision <= 0 {
			return "", driver.ErrConflict
		}
		unchanged = clientv3.Compare(clientv3.ModRevision(r.prefix+key), "=", revision)
	}
	for {
		shared, err := r.lease(ctx, ttl)
		if err != nil {
			return "", err
		}
		put := clientv3.OpPut(r.prefix+key, string(value), clientv3.WithLease(shared.id))
		var resp *clientv3.TxnResponse
		err = r.call(ctx, func(ctx context.Context) (err error) {
			resp, err = r.client.Txn(ctx).If(unchanged).Then(put).Commit()
			return err
		})
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // it was revoked, and nothing was changed
			r.leases.drop(shared)
		case err != nil:
			return "", err
		case !resp.Succeeded:
			return "", driver.ErrConflict
		default:
			return strconv.FormatInt(resp.Header.Revision, 10), nil
		}
	}
}

// List implements driver.Records, with one request.
func (r *Records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	resp, err := r.get(ctx, r.prefix+prefix, clientv3.WithPrefix()) // ordered by key
	if err != nil {
		return nil, err
	}
	var list []driver.Record
	for _, kv := range resp.Kvs {
		list = append(list, r.record(kv))
	}
	return list, nil
}

// Clock returns ErrUnsupported: clients cannot read etcd's clock.
func (r *Records) Clock(context.Context) (earliest, latest time.Time, err error) {
	return earliest, latest, fmt.Errorf("%w: etcd has no clock that clients can read", driver.ErrUnsupported)
}

// Await implements driver.Awaiter. It begins to watch the key, and then reads it. A watch from the
// version on would be slower: etcd catches up with such watches every 100 ms.
func (r *Records) Await(ctx context.Context, key, version string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	watch, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // ends the watch
	var seen int64 // the revision of the read; the member that is watched may be behind
	for resp := range r.client.Watch(watch, r.prefix+key, clientv3.WithCreatedNotify()) {
		rec, err := driver.Record{Key: key}, resp.Err()
		switch n := len(resp.Events); {
		case ctx.Err() != nil:
			return driver.Record{}, ctx.Err()
		case errors.Is(err, rpctypes.ErrCompacted): // while the client was disconnected
			return r.Get(ctx, key)
		case err != nil:
			return driver.Record{}, failure(err)
		case resp.Created:
			if rec, seen, err = r.read(ctx, key); err != nil {
				return driver.Record{}, cmp.Or(ctx.Err(), err)
			}
		case n == 0 || resp.Events[n-1].Kv.ModRevision <= seen:
			continue
		case resp.Events[n-1].Type == mvccpb.PUT:
			rec = r.record(resp.Events[n-1].Kv)
		}
		if rec.Version != version {
			return rec, nil
		}
	}
	return driver.Record{}, cmp.Or(ctx.Err(), failure(errors.New("the client is closed")))
}

// call makes one request. A member that sees no leader refuses it.
func (r *Records) call(ctx context.Context, request func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), r.limit)
	defer cancel()
	if err := request(ctx); err != nil {
		return failure(err)
	}
	return nil
}

// failure converts an error of the client. ErrConfig means that etcd has refused the request for
// good: the client lacks a permission, or the request is too large.
func failure(err error) error {
	kind := driver.ErrUnavailable
	if refusal, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		switch refusal.Code() {
		case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument:
			kind = driver.ErrConfig
		}
	}
	return fmt.Errorf("%w: records in etcd: %w", kind, err)
}
