package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
)

// sender sends receipts, in order and from one instance: the leader.
type sender struct {
	candidate *election.Candidate
	data      shop
	log       *slog.Logger
}

func newSender(locks *fencelock.Locker, data shop, stop time.Duration, log *slog.Logger) *sender {
	cfg := &election.Config{ShutdownTimeout: stop, Logger: log}
	return &sender{election.New(locks, "receipts", cfg), data, log}
}

// run returns when ctx ends. While Redis is unreachable, it tries again.
func (s *sender) run(ctx context.Context) error {
	err := s.candidate.Run(ctx, s.lead)
	if ctx.Err() != nil && !errors.Is(err, election.ErrStuck) {
		return nil
	}
	return err
}

// lead sends receipts until this instance does not lead any more.
func (s *sender) lead(ctx context.Context) error {
	s.log.InfoContext(ctx, "this instance sends the receipts")
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if err := s.send(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "receipt was not sent", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// send sends a receipt, if one is to be sent. If the process ends between the two steps, the next
// leader sends it again.
func (s *sender) send(ctx context.Context) error {
	id, err := s.data.receipt(ctx)
	if err != nil || id == "" {
		return err
	}
	s.log.InfoContext(ctx, "receipt sent", "invoice", id)
	return s.data.sent(ctx)
}
