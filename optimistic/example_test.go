package optimistic_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/optimistic"
)

// Ten processes add to one number, and none of it is lost.
func ExampleStore_Update() {
	ctx := context.Background()
	engine := memlock.New(nil)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			client := engine.Client()
			store := optimistic.New(client.Records(), &optimistic.Config{Locks: fencelock.New(client, nil)})
			for range 5 {
				_, err := store.Update(ctx, "visits", func(_ context.Context, old []byte) ([]byte, error) {
					n, _ := strconv.Atoi(string(old)) // 0 if there is none
					return strconv.AppendInt(nil, int64(n)+1, 10), nil
				})
				if err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	all.Wait()
	visits, ok, err := optimistic.New(engine.Records(), nil).Get(ctx, "visits")
	fmt.Printf("%s %v %v\n", visits, ok, err)
	// Output:
	// 50 true <nil>
}
