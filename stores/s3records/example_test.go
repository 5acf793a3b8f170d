package s3records_test

import (
	"context"
	"fmt"
	"log"
	"strconv"

	"github.com/fencelock/fencelock/optimistic"
	"github.com/fencelock/fencelock/stores/s3records"
)

// A number that many processes count up, in a bucket.
func Example() {
	records := s3records.New("my-bucket", &s3records.Config{Region: "eu-west-1", Prefix: "counters/"})
	ctx := context.Background()
	if err := records.Init(ctx); err != nil { // checks that the store obeys conditions
		log.Fatal(err)
	}
	n, err := optimistic.New(records, nil).Update(ctx, "visits", func(_ context.Context, old []byte) ([]byte, error) {
		n, _ := strconv.Atoi(string(old)) // 0 for the first
		return strconv.AppendInt(nil, int64(n)+1, 10), nil
	})
	fmt.Println("visit", string(n.Value), err)
}
