package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/redislock"
)

// payments answers POST /invoices/{id}/payment.
type payments struct {
	locks  *fencelock.Locker
	data   shop
	charge time.Duration
	log    *slog.Logger
}

var errPaid = errors.New("the invoice is paid")

// newPayments returns the API: a rate limit for each account, one payment for each Idempotency-Key,
// and a lock for each invoice.
func newPayments(locks *fencelock.Locker, engine *redislock.Engine, tracer *fencelock.Tracer, data shop, charge time.Duration, log *slog.Logger) http.Handler {
	p := &payments{locks.With(fencelock.Options{Wait: 10 * time.Second}), data, charge, log}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /invoices/{id}/payment", p.pay)

	keys := idempotent.New(locks, engine.Records(), nil).With(idempotent.Options{Wait: 10 * time.Second})
	once := keys.Handler(mux, &idempotent.HTTP{Client: account, Detach: true, Failed: func(r *http.Request, err error) {
		log.WarnContext(r.Context(), "request has no stored outcome", "path", r.URL.Path, "error", err)
	}})
	limiter := ratelimit.New(engine, "payments", ratelimit.PerSecond(20), &ratelimit.Config{OnDecision: tracer.RateEnd})
	return ratelimit.Handler(limiter, account, once)
}

// account stands for the account that a real service authenticates.
func account(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	return name
}

func (p *payments) pay(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	err := p.locks.Do(r.Context(), "invoice:"+id, func(ctx context.Context) error { return p.settle(ctx, id) })
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case errors.Is(err, errPaid):
		http.Error(w, "the invoice is paid", http.StatusConflict)
		return
	case errors.Is(err, fencelock.ErrHeld):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "another request is paying this invoice", http.StatusServiceUnavailable)
	case errors.Is(err, fencelock.ErrUnavailable):
		w.Header().Set("Retry-After", "5")
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	default: // also fencelock.ErrLost and fence.ErrStale
		http.Error(w, "the outcome is unknown: query the invoice", http.StatusInternalServerError)
	}
	p.log.WarnContext(r.Context(), "payment failed", "invoice", id, "error", err)
}

// settle charges an invoice and stores the payment. The client's disconnect does not end ctx, since
// the handler is detached. A charge that has begun is not cut short by a lost lock either: its outcome
// would be unknown. So the payment is stored in any case, unless a later holder of the lock has stored
// one: the guard refuses it then.
func (p *payments) settle(ctx context.Context, id string) error {
	if paid, err := p.data.paid(ctx, id); err != nil {
		return err
	} else if paid {
		return errPaid
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ctx = context.WithoutCancel(ctx)
	return p.data.pay(ctx, id, provider(id, p.charge))
}

// provider stands for a payment provider, which charges an invoice once, however often it is asked.
// It returns the number of the charge.
func provider(id string, takes time.Duration) string {
	time.Sleep(takes)
	return "charge of " + id
}
