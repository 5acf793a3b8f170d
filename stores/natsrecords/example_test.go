package natsrecords_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/natsrecords"
)

// Locks in a bucket that three servers store.
func Example() {
	conn, err := nats.Connect("nats://h1,nats://h2,nats://h3", nats.MaxReconnects(-1), nats.PingInterval(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	records := natsrecords.New(js, "locks", &natsrecords.Config{Replicas: 3})
	if err := records.Init(ctx); err != nil { // creates the bucket, or checks it
		log.Fatal(err)
	}
	engine := recordlock.New(records, &recordlock.Config{Name: "nats"})
	defer engine.Close()
	locks := fencelock.New(engine, nil)

	err = locks.Do(ctx, "invoice:42", func(context.Context) error {
		fmt.Println("charged")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
