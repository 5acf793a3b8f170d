package etcdrecords_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/etcdrecords"
)

// Locks in etcd. A waiter that arrives after the death of a holder may wait for twice the TTL, so a
// shorter TTL than the default of 30 s is better for short jobs.
func Example() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:         []string{"h1:2379", "h2:2379", "h3:2379"},
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	records := etcdrecords.New(client, nil)
	if err := records.Init(ctx); err != nil { // checks the rights
		log.Fatal(err)
	}
	engine := recordlock.New(records, &recordlock.Config{Name: "etcd"})
	defer engine.Close()
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: 10 * time.Second})

	err = locks.Do(ctx, "invoice:42", func(context.Context) error {
		fmt.Println("charged")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
