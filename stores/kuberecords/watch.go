package kuberecords

import (
	"context"
	"net/url"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// Await implements driver.Awaiter by a watch from the version. A watch lasts a minute at most, and a
// second if the record expires, of which a watch does not tell. Then the record is read again.
func (r *Records) Await(ctx context.Context, key, from string) (driver.Record, error) {
	old, _ := parseVersion(from) // one that no record has differs from all
	wait := time.Minute
	if old.Expires != 0 {
		wait = time.Second
	}
	pause := retry.NewBackoff(10*time.Millisecond, 2*time.Second)
	for revision := old.Resource; ; revision = "" {
		if revision == "" {
			var rec driver.Record
			err := r.call(ctx, func(ctx context.Context) (err error) {
				rec, revision, err = r.look(ctx, key)
				return err
			})
			if err != nil || rec.Version != from {
				return rec, err
			}
		}
		begun := time.Now()
		o, err := r.api.Watch(ctx, r.objectName(key), revision, wait)
		switch {
		case ctx.Err() != nil:
			return driver.Record{}, ctx.Err()
		case err != nil:
			return driver.Record{}, failure(err)
		case o != nil && o.Metadata.ResourceVersion == "":
			return driver.Record{Key: key}, nil
		case o != nil:
			rec, _, err := r.record(key, o, time.Time{}) // what was written now has not expired
			return rec, err
		case time.Since(begun) < time.Second:
			pause.Wait(ctx) // a proxy may end each watch at once
		}
	}
}

// look returns a record and the revision at which it was read. An object that does not exist has no
// revision, so this is a list.
func (r *Records) look(ctx context.Context, key string) (rec driver.Record, revision string, err error) {
	rec.Key = key
	p, at, err := r.api.List(ctx, url.Values{"fieldSelector": {"metadata.name=" + r.objectName(key)}})
	if err == nil && len(p.Items) > 0 {
		rec, _, err = r.record(key, &p.Items[0], at)
	}
	return rec, p.Metadata.ResourceVersion, err
}
