package election_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

// One of many processes does the billing. The others wait for their turn.
func ExampleRun() {
	locks := fencelock.New(memlock.New(nil), nil).With(fencelock.Options{TTL: 15 * time.Second})

	err := election.Run(context.Background(), locks, "billing", func(ctx context.Context) error {
		term, _ := fencelock.TokenFrom(ctx)
		fmt.Println("in charge, with a term number:", term > 0)
		return nil // done for good; a real service would go on until ctx ends
	})
	fmt.Println(err)
	// Output:
	// in charge, with a term number: true
	// <nil>
}

// A leader publishes its address, and anybody can ask for it.
func ExampleCandidate_Terms() {
	locks := fencelock.New(memlock.New(nil), nil)
	ctx := context.Background()
	candidate := election.New(locks, "billing", &election.Config{Value: "10.0.0.7:8080"})

	for term, err := range candidate.Terms(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		leader, err := election.Current(ctx, locks, "billing")
		fmt.Println(leader.Value, leader.Term == term.Token(), err)
		break // resigns for good
	}
	leader, err := election.Current(ctx, locks, "billing")
	fmt.Println(leader == election.Leader{}, err)
	// Output:
	// 10.0.0.7:8080 true <nil>
	// true <nil>
}

// Everybody follows who leads.
func ExampleObserve() {
	locks := fencelock.New(memlock.New(nil), nil)
	for leader, err := range election.Observe(context.Background(), locks, "billing") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("leader %q, term %d\n", leader.Value, leader.Term)
		break
	}
	// Output: leader "", term 0
}
