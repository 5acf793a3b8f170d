// Package dynamorecords stores records ([driver.Records]) as items of a table of DynamoDB.
//
// A Swap is one PutItem on a condition. The condition also holds if the item is already the one that
// this Swap writes, so a PutItem without an answer can be sent again. Reads are strongly consistent.
//
//	records := dynamorecords.New("locks", &dynamorecords.Config{Region: "eu-west-1"})
//	if err := records.Init(ctx); err != nil { // creates the table if there is none
//		return err
//	}
//	locks := fencelock.New(recordlock.New(records, nil), nil)
//
// A login needs dynamodb:DescribeTable, GetItem, PutItem and Scan on the table, and CreateTable for Init.
// The table of a global table is refused: it resolves two writes by the later one.
//
// The store's clock is the Date header of its answers, which has whole seconds. A record remains for
// up to four seconds longer than its TTL.
package dynamorecords

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/awslogin"
	"github.com/fencelock/fencelock/internal/bucket"
	"github.com/fencelock/fencelock/internal/retry"
)

// Config holds the settings of Records.
type Config struct {
	// Region is the region of the table. Empty means AWS_REGION, AWS_DEFAULT_REGION or us-east-1.
	Region string

	// Endpoint is the URL of a server other than Amazon's.
	Endpoint string

	// Timeout limits each call, with all its attempts, each of which may take a third of it. 0 means
	// 5 seconds.
	Timeout time.Duration

	// Client sends the requests. Nil means a client of its own.
	Client *http.Client
}

// maxRecord is the longest value of a record: an item has 400 KB at most, with its key.
const maxRecord = 398 << 10

// Records stores records in a table. It is safe for concurrent use.
type Records struct {
	api     api
	table   string
	limit   time.Duration
	clock   clock
	checked atomic.Bool // the table fits
}

var _ driver.Records = (*Records)(nil)

// New returns the records of a table. It does no I/O.
func New(table string, cfg *Config) *Records {
	if cfg == nil {
		cfg = &Config{}
	}
	region, limit := awslogin.Region(cfg.Region), cmp.Or(cfg.Timeout, 5*time.Second)
	client := cfg.Client
	if client == nil {
		client = &http.Client{Transport: bucket.Transport()}
	}
	r := &Records{table: table, limit: limit}
	r.api = api{
		url:    strings.TrimSuffix(cmp.Or(cfg.Endpoint, "https://dynamodb."+region+".amazonaws.com"), "/") + "/",
		client: client, sign: awslogin.New(client, "dynamodb", region).Sign, limit: limit / 3, clock: &r.clock,
	}
	return r
}

// An item has the key, a version, the value, and when it is over, in seconds since 1970, unless it
// has no TTL. DynamoDB can be set to delete items that are over, which it does days later.
type item struct {
	Key     text    `json:"k"`
	Version text    `json:"v"`
	Value   blob    `json:"d"`
	Expires *number `json:"e,omitempty"`
}

type (
	text   struct{ S string }
	blob   struct{ B []byte }
	number struct{ N string }
)

// record returns the record of an item, which has no version if it is over.
func (i item) record(now int64) driver.Record {
	rec := driver.Record{Key: i.Key.S}
	if i.Version.S == "" || i.Expires != nil && seconds(i.Expires.N) <= now {
		return rec
	}
	rec.Value, rec.Version = i.Value.B, i.Version.S
	return rec
}

func seconds(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }

func whole(n int64) *number { return &number{strconv.FormatInt(n, 10)} }

// Get implements driver.Records.
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	var out struct{ Item item }
	if err := r.check(ctx); err != nil {
		return driver.Record{}, err
	}
	err := r.again(ctx, func(ctx context.Context) error {
		return r.api.call(ctx, "GetItem", map[string]any{"TableName": r.table, "Key": map[string]text{"k": {key}}, "ConsistentRead": true}, &out)
	})
	if err != nil {
		return driver.Record{}, err
	}
	rec := out.Item.record(r.clock.earliest())
	rec.Key = key
	return rec, nil
}

// The conditions of a Swap. The last part makes a repeated PutItem succeed.
const (
	unchanged = "(v = :old AND (attribute_not_exists(e) OR e > :now)) OR v = :new"
	absent    = "attribute_not_exists(k) OR e <= :now OR v = :new"
)

// Swap implements driver.Records.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	if len(value) > maxRecord {
		return "", fmt.Errorf("%w: DynamoDB stores values of %d bytes at most", driver.ErrInvalid, maxRecord)
	}
	if err := r.check(ctx); err != nil {
		return "", err
	}
	if !r.clock.known() { // the expiry needs it, and the first call of a process only
		if _, _, err := r.Clock(ctx); err != nil {
			return "", err
		}
	}
	next := rand.Text()
	it := item{Key: text{key}, Version: text{next}, Value: blob{append([]byte{}, value...)}}
	if ttl > 0 {
		it.Expires = whole(r.clock.latest() + int64((ttl+time.Second-1)/time.Second) + late)
	}
	values := map[string]any{":new": text{next}, ":now": whole(r.clock.earliest())}
	condition := absent
	if version != "" {
		values[":old"], condition = text{version}, unchanged
	}
	put := map[string]any{"TableName": r.table, "Item": it, "ConditionExpression": condition, "ExpressionAttributeValues": values}
	return next, r.put(ctx, put)
}

// late is how many seconds longer than its TTL a record remains, by the clocks of two servers.
const late = 1

// put sends a PutItem until there is an answer.
func (r *Records) put(ctx context.Context, in any) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	var unknown error // of an attempt that may have written the item, or may still write it
	for pause := backoff(); ; {
		err := r.api.call(ctx, "PutItem", in, nil)
		switch {
		case err == nil:
			return nil
		case unknown == nil && (errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig)):
			return err
		case errors.Is(err, driver.ErrConflict), errors.Is(err, driver.ErrConfig):
			return failure(unknown) // another one may have replaced what this one wrote
		case !errors.Is(err, errBusy):
			unknown = err
		}
		if !pause.Wait(ctx) {
			return failure(cmp.Or(unknown, err))
		}
	}
}

// List implements driver.Records. It reads the whole table.
func (r *Records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	var list []driver.Record
	in := map[string]any{"TableName": r.table, "ConsistentRead": true}
	if begins := strings.ToValidUTF8(prefix, ""); strings.HasPrefix(prefix, begins) && begins != "" { // a prefix may end within a letter
		in["FilterExpression"], in["ExpressionAttributeValues"] = "begins_with(k, :p)", map[string]any{":p": text{begins}}
	}
	for {
		var out struct {
			Items            []item
			LastEvaluatedKey map[string]any
		}
		if err := r.again(ctx, func(ctx context.Context) error { return r.api.call(ctx, "Scan", in, &out) }); err != nil {
			return nil, err
		}
		for _, it := range out.Items {
			if rec := it.record(r.clock.earliest()); rec.Version != "" && strings.HasPrefix(rec.Key, prefix) {
				list = append(list, rec)
			}
		}
		if in["ExclusiveStartKey"] = out.LastEvaluatedKey; out.LastEvaluatedKey == nil {
			break
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list, nil
}

// Clock implements driver.Records. It reads the Date header of an answer.
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	if err := r.check(ctx); err != nil {
		return earliest, latest, err
	}
	err = r.again(ctx, func(ctx context.Context) error {
		in := map[string]any{"TableName": r.table, "Key": map[string]text{"k": {"fencelock clock"}}}
		earliest, err = r.api.date(ctx, "GetItem", in, nil)
		if err == nil && earliest.IsZero() {
			err = fmt.Errorf("%w: the answer has no Date", driver.ErrConfig)
		}
		return err
	})
	return earliest, earliest.Add(time.Second), err
}

// again sends a request that changes nothing, until it succeeds, a retry is useless or the time of
// a call is over.
func (r *Records) again(ctx context.Context, request func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	for pause := backoff(); ; {
		err := request(ctx)
		if err == nil || errors.Is(err, driver.ErrConfig) || !pause.Wait(ctx) {
			return failure(err)
		}
	}
}

func backoff() *retry.Backoff { return retry.NewBackoff(20*time.Millisecond, time.Second) }

// description is what is asked of a table.
type description struct {
	Table struct {
		TableStatus string
		Replicas    []struct{ RegionName string }
		KeySchema   []struct{ AttributeName, KeyType string }
	}
}

// unusable reports whether the table stays unusable until somebody restores it.
func (d description) unusable() bool {
	return slices.Contains([]string{"ARCHIVING", "ARCHIVED", "INACCESSIBLE_ENCRYPTION_CREDENTIALS"}, d.Table.TableStatus)
}

// fits returns an error if the table cannot keep locks.
func (d description) fits() error {
	t := d.Table
	switch {
	case d.unusable():
		return fmt.Errorf("%w: the table's status is %s: restore the table, or its key in AWS KMS, or use another table", driver.ErrConfig, t.TableStatus)
	case len(t.Replicas) > 0:
		return fmt.Errorf("%w: the table has replicas in other regions (a global table), which resolve two writes by the later one: use a table of one region", driver.ErrConfig)
	case len(t.KeySchema) != 1 || t.KeySchema[0].AttributeName != "k":
		return fmt.Errorf("%w: the key of the table is not the attribute k alone: let Init create the table", driver.ErrConfig)
	}
	return nil
}

// check checks the table before the first call.
func (r *Records) check(ctx context.Context) error {
	if r.checked.Load() {
		return ctx.Err()
	}
	var out description
	err := r.again(ctx, func(ctx context.Context) error {
		return r.api.call(ctx, "DescribeTable", map[string]any{"TableName": r.table}, &out)
	})
	if err == nil {
		err = out.fits()
	}
	if err == nil {
		r.checked.Store(true)
	}
	return err
}

// Init creates the table if it does not exist, and waits until it can be used. Its capacity is paid for by
// request. Init also checks that the table fits.
func (r *Records) Init(ctx context.Context) error {
	attribute := []map[string]string{{"AttributeName": "k", "AttributeType": "S"}}
	schema := []map[string]string{{"AttributeName": "k", "KeyType": "HASH"}}
	for {
		var out description
		err := r.api.call(ctx, "DescribeTable", map[string]any{"TableName": r.table}, &out)
		if errors.Is(err, ErrNoTable) {
			err = r.api.call(ctx, "CreateTable", map[string]any{"TableName": r.table, "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": attribute, "KeySchema": schema}, nil)
		}
		if status := out.Table.TableStatus; status == "ACTIVE" || status == "UPDATING" || out.unusable() {
			return out.fits()
		}
		if err != nil && !errors.Is(err, errBusy) {
			return failure(err)
		}
		if !retry.Sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("waiting for the table, whose status is %q: %w", out.Table.TableStatus, ctx.Err())
		}
	}
}

// failure converts an error of a request to one of the records.
func failure(err error) error {
	if err == nil || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig) {
		return err
	}
	return fmt.Errorf("%w: records in DynamoDB: %w", driver.ErrUnavailable, err)
}
