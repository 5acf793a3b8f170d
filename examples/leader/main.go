// Command leader is an example: of the processes that run it, one leads, and all
// of them follow who does. Start it in several terminals and stop one or another:
//
//	go run ./examples/leader
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/filelock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	locks := fencelock.New(filelock.New(filepath.Join(os.TempDir(), "fencelock-leader"), nil), nil)

	me := fmt.Sprintf("process %d", os.Getpid())
	candidate := election.New(locks, "leader", &election.Config{Value: me})
	go follow(ctx, locks, me)
	fmt.Println("the end:", candidate.Run(ctx, lead))
}

// follow prints every change. It ends with ctx.
func follow(ctx context.Context, locks *fencelock.Locker, me string) {
	for leader, err := range election.Observe(ctx, locks, "leader") {
		switch {
		case err != nil:
			return
		case leader.Value == "":
			fmt.Println("nobody leads")
		case leader.Value != me:
			fmt.Println(leader.Value, "leads, in term", leader.Term)
		}
	}
}

// lead is what the leader does until its term ends: ctx then ends first.
func lead(ctx context.Context) error {
	term, _ := fencelock.TokenFrom(ctx)
	fmt.Println("I lead, in term", term)
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-tick.C:
			fmt.Println("leading")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
