// Command nightly is an example: a job that one of many instances runs for each
// tick of a schedule, here every ten seconds. Start it in several terminals; each
// tick is run by one of them, and the others skip it:
//
//	go run ./examples/nightly
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/filelock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	locks := fencelock.New(filelock.New(filepath.Join(os.TempDir(), "fencelock-nightly"), nil), nil)
	job := cron.New(locks, "invoices", &cron.Config{
		CatchUp: 1, // the last tick is made up for if nobody ran it
		OnTick:  tell,
	})
	fmt.Println("the end:", job.Run(ctx, cron.Every(10*time.Second), invoices))
}

// invoices is the work, which takes no longer than 8 s. Its token lets whatever it writes to refuse an
// older run.
func invoices(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	token, _ := fencelock.TokenFrom(ctx)
	fmt.Println("writing invoices under token", token)
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tell says how a tick ended on this instance.
func tell(_ cron.Run, err error) {
	switch {
	case errors.Is(err, cron.ErrSkipped):
		fmt.Println("skipped:", err)
	case err != nil:
		fmt.Println("failed:", err)
	default:
		fmt.Println("done")
	}
}
