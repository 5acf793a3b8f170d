package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/fence/fencegoredis"
)

// shop is the data of the service: invoices, the receipts that are to be sent, and a report. All
// writes go through the guard, which refuses those of a process that has lost its lock.
type shop struct {
	client *redis.Client
	guard  *fencegoredis.Guard
}

// The hash tag keeps an invoice and the receipts in one slot, so that a script can write both.
const (
	receipts = "{shop}:receipts"
	reports  = "{shop}:report"
)

func invoice(id string) string { return "{shop}:invoice:" + id }

// paid reports whether an invoice is paid.
func (s shop) paid(ctx context.Context, id string) (bool, error) {
	return s.client.HExists(ctx, invoice(id), "paid").Result()
}

// pay stores a payment and the receipt that is to be sent.
func (s shop) pay(ctx context.Context, id, charge string) error {
	const script = `redis.call("HSET", KEYS[1], "paid", ARGV[1]) return redis.call("RPUSH", KEYS[2], ARGV[2])`
	return s.guard.Eval(ctx, invoice(id), script, []string{invoice(id), receipts}, []string{charge, id}).Err()
}

// receipt returns the invoice of the oldest receipt that is to be sent, "" if there is none.
func (s shop) receipt(ctx context.Context) (string, error) {
	id, err := s.client.LIndex(ctx, receipts, 0).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return id, err
}

// sent removes the oldest receipt.
func (s shop) sent(ctx context.Context) error {
	return s.guard.Eval(ctx, receipts, `return redis.call("LPOP", KEYS[1])`, []string{receipts}, nil).Err()
}

// waiting returns how many receipts are to be sent.
func (s shop) waiting(ctx context.Context) (int64, error) {
	return s.client.LLen(ctx, receipts).Result()
}

// report stores the report of a time.
func (s shop) report(ctx context.Context, at, waiting string) error {
	return s.guard.HSet(ctx, reports, "at", at, "receipts", waiting)
}
