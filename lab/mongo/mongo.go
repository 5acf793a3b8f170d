// Package mongo is a sketch of a store of records in MongoDB. It shows how the conditional writes of a
// vendor's client become [driver.Records]. It compiles, and was not tested on a server: run the
// conformance suite on recordlock.New(records, nil) before you use it.
package mongo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/fencelock/fencelock/driver"
)

// Records stores records in a collection of MongoDB.
type Records struct{ collection *mongo.Collection }

var _ driver.Records = (*Records)(nil)

// document is a record.
type document struct {
	Key     string `bson:"_id"`
	Value   []byte `bson:"value"`
	Version string `bson:"version"`
	Expires int64  `bson:"expires"`
}

// New returns the records of a collection. The client must have been made with
// SetRetryWrites(false).
func New(db *mongo.Database, name string) *Records {
	return &Records{db.Collection(name, options.Collection().SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Linearizable()).SetWriteConcern(writeconcern.Majority()))}
}

// Get implements driver.Records.
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	ctx, cancel, err := begin(ctx, driver.CheckName(key))
	if err != nil {
		return driver.Record{}, err
	}
	defer cancel()
	var d document
	err = r.collection.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Decode(&d)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments), err == nil && over(d.Expires):
		return driver.Record{Key: key}, nil
	case err != nil:
		return driver.Record{}, unavailable(err)
	}
	return driver.Record{Key: key, Value: d.Value, Version: d.Version}, nil
}

// Swap implements driver.Records. A document that is over is no record, so a new one may replace it.
// If there is another one, the insertion fails because _id is unique.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	ctx, cancel, err := begin(ctx, driver.CheckSwap(key, value, ttl))
	if err != nil {
		return "", err
	}
	defer cancel()
	now := time.Now().UnixMicro()
	ended := bson.D{{Key: "$gt", Value: 0}, {Key: "$lte", Value: now}}
	filter := bson.D{{Key: "_id", Value: key}, {Key: "expires", Value: ended}}
	if version != "" {
		filter = bson.D{{Key: "_id", Value: key}, {Key: "version", Value: version}, {Key: "expires", Value: bson.D{{Key: "$not", Value: ended}}}}
	}
	next := document{key, value, rand.Text(), expiry(ttl)}
	err = r.collection.FindOneAndReplace(ctx, filter, next, options.FindOneAndReplace().SetUpsert(version == "")).Err()
	switch {
	case mongo.IsDuplicateKeyError(err), errors.Is(err, mongo.ErrNoDocuments) && version != "":
		return "", driver.ErrConflict
	case err != nil && !errors.Is(err, mongo.ErrNoDocuments): // which an upsert returns, too
		return "", unavailable(err)
	}
	return next.Version, nil
}

// List implements driver.Records.
func (r *Records) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	ctx, cancel, err := begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer cancel()
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: "^" + regexp.QuoteMeta(prefix)}}}}
	found, err := r.collection.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	var all []document
	if err == nil {
		err = found.All(ctx, &all)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	for _, d := range all {
		if !over(d.Expires) {
			list = append(list, driver.Record{Key: d.Key, Value: d.Value, Version: d.Version})
		}
	}
	return list, nil
}

// Clock implements driver.Records.
func (r *Records) Clock(context.Context) (earliest, latest time.Time, err error) { return noClock() }

// drift is how far apart the clocks of clients may be: a record remains for this time longer than
// its TTL.
const drift = time.Minute

// expiry returns when a record is over, in microseconds since 1970, or 0 for never.
func expiry(ttl time.Duration) int64 {
	if ttl == 0 {
		return 0
	}
	return time.Now().Add(ttl + drift).UnixMicro()
}

// over reports whether a record is over.
func over(expires int64) bool { return expires != 0 && time.Now().UnixMicro() >= expires }

// limit is how long a call may take.
const limit = 5 * time.Second

// begin returns the context of a call whose arguments are good.
func begin(ctx context.Context, wrong error) (context.Context, context.CancelFunc, error) {
	if wrong != nil {
		return nil, nil, wrong
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	return limited, cancel, nil
}

// unavailable is the error of a request without an answer: the record may have changed.
func unavailable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }

// noClock is the Clock of a store whose clients cannot read its clock.
func noClock() (earliest, latest time.Time, err error) {
	return earliest, latest, driver.ErrUnsupported
}
