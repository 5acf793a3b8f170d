package kubelock

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Await implements driver.Awaiter by a watch from the version. A watch lasts a minute at most, and a
// second if the record expires, of which a watch does not tell. Then the record is read again.
func (r *Records) Await(ctx context.Context, key, from string) (driver.Record, error) {
	old, _ := parseVersion(from) // one that no record has differs from all
	wait := time.Minute
	if old.Expires != 0 {
		wait = time.Second
	}
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
		o, err := r.watch(ctx, r.objectName(key), revision, wait)
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
		}
	}
}

// look returns a record and the revision at which it was read. An object that does not exist has no
// revision, so this is a list.
func (r *Records) look(ctx context.Context, key string) (rec driver.Record, revision string, err error) {
	rec.Key = key
	p, at, err := r.api.list(ctx, url.Values{"fieldSelector": {"metadata.name=" + r.objectName(key)}})
	if err == nil && len(p.Items) > 0 {
		rec, _, err = r.record(key, &p.Items[0], at)
	}
	return rec, p.Metadata.ResourceVersion, err
}

// watch waits until the object with a name changes after a revision, and returns it. It has no
// resourceVersion if it was deleted. The object is nil if there is none after a while.
func (r *Records) watch(ctx context.Context, name, revision string, wait time.Duration) (changed *object, err error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	query := url.Values{
		"watch": {"true"}, "fieldSelector": {"metadata.name=" + name}, "resourceVersion": {revision},
		"timeoutSeconds": {strconv.Itoa(int(wait.Seconds()))},
	}
	_, err = r.api.do(limited, http.MethodGet, "", query, nil, func(body io.Reader) (err error) {
		changed, err = next(json.NewDecoder(body))
		return err
	})
	if limited.Err() != nil && ctx.Err() == nil || errors.Is(err, errOld) {
		return nil, nil
	}
	return changed, err
}

// next returns the object of the first event that is about one, or nil if the server ends the watch.
func next(events *json.Decoder) (*object, error) {
	for {
		var event struct {
			Type   string
			Object struct {
				object
				Code int
			}
		}
		if events.Decode(&event) != nil {
			return nil, nil // a server may end a watch at any time
		}
		o := &event.Object.object
		switch event.Type {
		case "BOOKMARK":
			continue
		case "ERROR":
			return nil, problem(event.Object.Code, http.NoBody)
		case "DELETED":
			o.Metadata.ResourceVersion = ""
		}
		return o, nil
	}
}
