//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/bucket"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/dynamorecords"
)

// dynamoTarget is a parsed URL of DynamoDB.
type dynamoTarget struct {
	table     string
	config    dynamorecords.Config
	transport *http.Transport
}

// openDynamo checks the table, creates it if there is none, and returns the engine of the URL.
func openDynamo(ctx context.Context, u *url.URL, o options) (driver.Engine, func() error, error) {
	t, err := parseDynamo(u)
	if err != nil {
		return nil, nil, err
	}
	throughHTTP(t.transport, o.dial)
	records := dynamorecords.New(t.table, &t.config)
	engine := recordlock.New(records, &recordlock.Config{Name: u.Scheme})
	end := func() error { return closeBoth(engine.Close, t.transport.CloseIdleConnections) }
	missing := func(err error) bool { return errors.Is(err, dynamorecords.ErrNoTable) }
	if err := firstRequest(ctx, dynamoPatience, records, missing, func(err error) error {
		return explain(err, nil, "", "check the table, region= and endpoint= in FENCELOCK_URL, and the login")
	}); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return engine, end, nil
}

// dynamoPatience limits the requests before the first lock. A table is made in some seconds.
const dynamoPatience = 30 * time.Second

// parseDynamo parses a URL. It does not connect.
func parseDynamo(u *url.URL) (*dynamoTarget, error) {
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
	t := &dynamoTarget{table: u.Host, transport: bucket.Transport()}
	t.config = dynamorecords.Config{
		Region: q.Get("region"), Endpoint: q.Get("endpoint"), Timeout: q.duration("timeout", 300*time.Millisecond, "5s"),
		Client: &http.Client{Transport: t.transport},
	}
	err = checkAmazon(q, "table")
	return t, cmp.Or(err, q.err)
}

// dynamoPart returns the locks of a table whose names begin with a prefix.
func dynamoPart(u *url.URL, prefix string) (*Part, error) {
	t, err := parseDynamo(u)
	if err != nil {
		return nil, err
	}
	return &Part{URL: u.String(), Names: prefix, Hosts: hostOf(t.config.Endpoint, "DynamoDB"), Rate: clusterRate, Dead: DeadLeases, sweep: func(ctx context.Context, remove bool) (int, error) {
		defer t.transport.CloseIdleConnections()
		return sweepLocks(ctx, dynamorecords.New(t.table, &t.config), lockKeys+prefix, remove)
	}}, nil
}
