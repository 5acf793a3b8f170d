//go:build unix

// Command fencelock-all is the command fencelock that can also use the other stores, such as etcd and
// DynamoDB, and test an engine under faults (chaos). The clients and what the tests need make it larger, so
// it is a program of its own. Its help calls it fencelock: it can be installed under that name.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/cmd/internal/chaoscli"
	"github.com/fencelock/fencelock/cmd/internal/cli"
	_ "github.com/fencelock/fencelock/cmd/internal/early"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/stores/etcdrecords"
	"github.com/fencelock/fencelock/stores/natsrecords"
)

func main() {
	engineurl.AddStore("etcd", openEtcd)
	engineurl.AddStore("nats", openNATS)
	engineurl.AddAll()
	cli.Main(chaoscli.Jobs(), chaoscli.New, chaoscli.Verify)
}

// openEtcd opens the records with the prefix that the path is; the default one if there is none.
func openEtcd(s engineurl.Store) (engineurl.Records, func(), error) {
	var options []grpc.DialOption
	if s.Dial != nil {
		options = append(options, grpc.WithContextDialer(s.Dial))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: s.Addrs, Username: s.User, Password: s.Password, TLS: s.TLS, DialTimeout: 4 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		DialOptions: options, Logger: zap.NewNop(), // errors are returned as well
	})
	if err != nil { // it has logged in, or has no answer
		kind := driver.ErrConfig
		if errors.Is(err, context.DeadlineExceeded) {
			kind = driver.ErrUnavailable
		}
		return nil, nil, fmt.Errorf("%w: etcd: %w", kind, err)
	}
	prefix := ""
	if s.Path != "" {
		prefix = s.Path + "/"
	}
	records := etcdrecords.New(client, &etcdrecords.Config{Prefix: prefix, Timeout: s.Timeout})
	return records, func() { _ = client.Close() }, nil
}

// openNATS opens the records in the bucket that the path is; in "fencelock" if there is none.
func openNATS(s engineurl.Store) (engineurl.Records, func(), error) {
	options := nats.GetDefaultOptions()
	options.Name, options.Servers = "fencelock", nil
	for _, addr := range s.Addrs {
		options.Servers = append(options.Servers, "nats://"+addr)
	}
	options.User, options.Password, options.TLSConfig, options.Secure = s.User, s.Password, s.TLS, s.TLS != nil
	if s.Password == "" { // nats://token@host
		options.User, options.Token = "", s.User
	}
	if s.Credentials != "" {
		if err := nats.UserCredentials(s.Credentials)(&options); err != nil {
			return nil, nil, fmt.Errorf("%w: nats: %w", driver.ErrConfig, err)
		}
	}
	options.Timeout, options.MaxReconnect, options.ReconnectWait = time.Second, -1, 200*time.Millisecond
	options.PingInterval, options.MaxPingsOut = 2*time.Second, 2
	options.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // not to stderr; calls return errors as well
	if s.Dial != nil {
		options.CustomDialer = through(s.Dial)
	}
	conn, err := options.Connect()
	if err != nil {
		kind := driver.ErrUnavailable
		if errors.Is(err, nats.ErrAuthorization) {
			kind = driver.ErrConfig
		}
		return nil, nil, fmt.Errorf("%w: nats: %w", kind, err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("%w: nats: %w", driver.ErrConfig, err)
	}
	bucket := s.Path
	if bucket == "" {
		bucket = "fencelock"
	}
	return natsrecords.New(js, bucket, &natsrecords.Config{Replicas: s.Replicas, Timeout: s.Timeout}), conn.Close, nil
}

// through connects with a function.
type through func(ctx context.Context, addr string) (net.Conn, error)

// natsDialLimit limits an attempt to connect.
const natsDialLimit = 2 * time.Second

// Dial implements nats.CustomDialer.
func (t through) Dial(_, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), natsDialLimit)
	defer cancel()
	return t(ctx, addr)
}
