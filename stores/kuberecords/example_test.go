package kuberecords_test

import (
	"context"
	"log"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/kuberecords"
)

// A pod that works while it holds the Lease object "billing" of its namespace.
func Example() {
	records, err := kuberecords.New(nil) // with the service account of the pod
	if err != nil {
		log.Fatal(err)
	}
	engine := recordlock.New(records, &recordlock.Config{Name: "kubernetes"})
	defer engine.Close()
	locks := fencelock.New(engine, nil)
	err = locks.Do(context.Background(), "billing", func(ctx context.Context) error {
		return nil // work until ctx ends
	})
	if err != nil {
		log.Fatal(err)
	}
}
