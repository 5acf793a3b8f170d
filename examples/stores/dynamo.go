package stores

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fencelock/fencelock/driver"
)

// Dynamo stores records in a table of DynamoDB whose partition key is the string "key". An item also
// has a value, a version and the time at which it expires.
type Dynamo struct {
	client *dynamodb.Client
	table  string
}

var _ driver.Records = (*Dynamo)(nil)

// NewDynamo returns the records of a table. The client must not repeat a write by itself, since the
// second attempt would be refused if the first one has succeeded.
func NewDynamo(cfg aws.Config, table string) *Dynamo {
	once := func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }
	return &Dynamo{dynamodb.NewFromConfig(cfg, once), table}
}

// Get implements driver.Records.
func (d *Dynamo) Get(ctx context.Context, key string) (driver.Record, error) {
	ctx, cancel, err := begin(ctx, driver.CheckName(key))
	if err != nil {
		return driver.Record{}, err
	}
	defer cancel()
	answer, err := d.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &d.table, ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{"key": text(key)},
	})
	if err != nil {
		return driver.Record{}, unavailable(err)
	}
	rec := record(answer.Item)
	rec.Key = key
	return rec, nil
}

// Swap implements driver.Records. An item that is over is no record, so a new one may replace it.
func (d *Dynamo) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	ctx, cancel, err := begin(ctx, driver.CheckSwap(key, value, ttl))
	if err != nil {
		return "", err
	}
	defer cancel()
	next, now := rand.Text(), number(time.Now().UnixMicro())
	put := &dynamodb.PutItemInput{
		TableName:                 &d.table,
		Item:                      map[string]types.AttributeValue{"key": text(key), "value": &types.AttributeValueMemberB{Value: value}, "version": text(next), "expires": number(expiry(ttl))},
		ExpressionAttributeNames:  map[string]string{"#version": "version", "#expires": "expires"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":now": now, ":zero": number(0)},
		ConditionExpression:       aws.String("attribute_not_exists(#version) OR (#expires > :zero AND #expires <= :now)"),
	}
	if version != "" {
		put.ExpressionAttributeValues[":version"] = text(version)
		put.ConditionExpression = aws.String("#version = :version AND (#expires = :zero OR #expires > :now)")
	}
	_, err = d.client.PutItem(ctx, put)
	if refused := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &refused) {
		return "", driver.ErrConflict
	}
	if err != nil {
		return "", unavailable(err)
	}
	return next, nil
}

// List implements driver.Records. It reads the whole table.
func (d *Dynamo) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	pages := dynamodb.NewScanPaginator(d.client, &dynamodb.ScanInput{TableName: &d.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, unavailable(err)
		}
		for _, item := range page.Items {
			if rec := record(item); rec.Version != "" && strings.HasPrefix(rec.Key, prefix) {
				list = append(list, rec)
			}
		}
	}
	slices.SortFunc(list, func(a, b driver.Record) int { return strings.Compare(a.Key, b.Key) })
	return list, ctx.Err()
}

// Clock implements driver.Records.
func (d *Dynamo) Clock(context.Context) (earliest, latest time.Time, err error) { return noClock() }

// record returns the record of an item. If there is none, or it is over, Version is empty.
func record(item map[string]types.AttributeValue) (rec driver.Record) {
	key, _ := item["key"].(*types.AttributeValueMemberS)
	value, _ := item["value"].(*types.AttributeValueMemberB)
	version, _ := item["version"].(*types.AttributeValueMemberS)
	expires, _ := item["expires"].(*types.AttributeValueMemberN)
	if key == nil || version == nil || value == nil || expires == nil {
		return rec
	}
	if end, err := strconv.ParseInt(expires.Value, 10, 64); err != nil || over(end) {
		return rec
	}
	return driver.Record{Key: key.Value, Value: value.Value, Version: version.Value}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
