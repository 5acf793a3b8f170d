package robfigcron_test

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/cron/schedulers/robfigcron"
	"github.com/fencelock/fencelock/memlock"
	robfig "github.com/robfig/cron/v3"
)

// Every instance adds the same entries; each tick is run by one of them.
func ExampleAdd() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	job := cron.New(fencelock.New(memlock.New(nil), nil), "invoices", nil)
	ran := make(chan bool, 100)

	c := robfig.New(robfig.WithSeconds())
	_, err := robfigcron.Add(ctx, c, "* * * * * *", job, func(ctx context.Context) error {
		_, locked := fencelock.TokenFrom(ctx)
		ran <- locked
		return nil
	})
	c.Start()
	fmt.Println("ran under a token:", <-ran, err)
	<-c.Stop().Done()
	// Output: ran under a token: true <nil>
}
