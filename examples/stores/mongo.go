package stores

import (
	"context"
	"crypto/rand"
	"errors"
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

// Mongo stores records in a collection of MongoDB.
type Mongo struct{ collection *mongo.Collection }

var _ driver.Records = (*Mongo)(nil)

// document is a record.
type document struct {
	Key     string `bson:"_id"`
	Value   []byte `bson:"value"`
	Version string `bson:"version"`
	Expires int64  `bson:"expires"`
}

// NewMongo returns the records of a collection. The client must have been made with
// SetRetryWrites(false).
func NewMongo(db *mongo.Database, name string) *Mongo {
	return &Mongo{db.Collection(name, options.Collection().SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Linearizable()).SetWriteConcern(writeconcern.Majority()))}
}

// Get implements driver.Records.
func (m *Mongo) Get(ctx context.Context, key string) (driver.Record, error) {
	ctx, cancel, err := begin(ctx, driver.CheckName(key))
	if err != nil {
		return driver.Record{}, err
	}
	defer cancel()
	var d document
	err = m.collection.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Decode(&d)
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
func (m *Mongo) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
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
	err = m.collection.FindOneAndReplace(ctx, filter, next, options.FindOneAndReplace().SetUpsert(version == "")).Err()
	switch {
	case mongo.IsDuplicateKeyError(err), errors.Is(err, mongo.ErrNoDocuments) && version != "":
		return "", driver.ErrConflict
	case err != nil && !errors.Is(err, mongo.ErrNoDocuments): // which an upsert returns, too
		return "", unavailable(err)
	}
	return next.Version, nil
}

// List implements driver.Records.
func (m *Mongo) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	ctx, cancel, err := begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer cancel()
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: "^" + regexp.QuoteMeta(prefix)}}}}
	found, err := m.collection.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
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
func (m *Mongo) Clock(context.Context) (earliest, latest time.Time, err error) { return noClock() }
