//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/bucket"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/dynamorecords"
)

// Dynamo is a parsed URL of DynamoDB.
type Dynamo struct {
	Config    dynamorecords.Config
	Transport *http.Transport
	table     string
}

// Open checks the table, creates it if there is none, and returns the engine.
func (t *Dynamo) Open(ctx context.Context, _ *slog.Logger) (driver.Engine, func() error, error) {
	records := t.Records()
	engine := recordlock.New(records, &recordlock.Config{Name: "dynamodb"})
	end := func() error { return closeBoth(engine.Close, t.Transport.CloseIdleConnections) }
	missing := func(err error) bool { return errors.Is(err, dynamorecords.ErrNoTable) }
	if err := firstRequest(ctx, dynamoPatience, records, missing, func(err error) error {
		return explain(err, nil, "", "check the table, region= and endpoint= in FENCELOCK_URL, and the login")
	}); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return engine, end, nil
}

// Records returns the records in the table.
func (t *Dynamo) Records() *dynamorecords.Records { return dynamorecords.New(t.table, &t.Config) }

// dynamoPatience limits the requests before the first lock. A table is made in some seconds.
const dynamoPatience = 30 * time.Second

// parseDynamo parses a URL. It does not connect.
func parseDynamo(u *url.URL) (*Dynamo, error) {
	switch {
	case u.User != nil:
		return nil, errors.New("the URL has a user; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	case u.Opaque != "" || u.Fragment != "" || len(u.Host) < 3 || strings.Trim(u.Path, "/") != "" ||
		strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "":
		return nil, errors.New("the URL needs the name of a table, and nothing after it")
	}
	q, err := parseKnown(u, s3Parameters...)
	if err != nil {
		return nil, err
	}
	t := &Dynamo{table: u.Host, Transport: bucket.Transport()}
	t.Config = dynamorecords.Config{
		Region: q.Get("region"), Endpoint: q.Get("endpoint"), Timeout: q.duration("timeout", 300*time.Millisecond, "5s"),
		Client: &http.Client{Transport: t.Transport},
	}
	err = checkAmazon(q, "table")
	return t, cmp.Or(err, q.err)
}
