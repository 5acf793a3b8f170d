package drivertest_test

import (
	"context"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/traceparent"
)

func lowerCase(name string, _ driver.Mode) string { return strings.ToLower(name) }

// asking are engines that are wrong about names, requests and answers.
var asking = []mutant{
	{"names without case", "names", func(b *broken) {
		b.rename(lowerCase)
	}},
	{"names cut short", "names", func(b *broken) {
		b.rename(func(name string, _ driver.Mode) string { return name[:min(len(name), 511)] })
	}},
	{"repairs the request", "bad-input", func(b *broken) {
		b.ask(func(req *driver.Request) { req.TTL = max(req.TTL, time.Second) })
	}},
	{"drops the minimum hold of a shared lock", "bad-input", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if req.Mode == driver.Shared {
				req.MinHold = 0
			}
		})
	}},
	{"lowers a limit that is too great", "bad-input", func(b *broken) {
		b.ask(func(req *driver.Request) { req.Limit = min(req.Limit, driver.MaxLimit) })
	}},
	{"renews the first hundred", "thousand", func(b *broken) {
		b.renew = func(ctx context.Context, ls []driver.Lease) []error {
			return b.process.Renew(ctx, ls[:min(len(ls), 100)])
		}
	}},
	{"lists free prefixes", "list", func(b *broken) {
		b.list = func(ctx context.Context, q driver.Query) ([]driver.Status, error) {
			q.Exact = false
			return b.process.List(ctx, q)
		}
	}},
	{"places count from zero", "list", func(b *broken) {
		b.list = func(ctx context.Context, q driver.Query) ([]driver.Status, error) {
			list, err := b.process.List(ctx, q)
			for _, s := range list {
				for i := range s.Waiters {
					s.Waiters[i].Position--
				}
			}
			return list, err
		}
	}},
	{"loses traces", "trace", func(b *broken) { b.ask(func(req *driver.Request) { req.Trace = "" }) }},
	{"loses kinds", "trace", func(b *broken) { b.ask(func(req *driver.Request) { req.Kind = "" }) }},
	{"loses maximum holds", "trace", func(b *broken) { b.ask(func(req *driver.Request) { req.MaxHold = 0 }) }},
	{"loses the traces of those who wait", "trace", func(b *broken) {
		b.list = func(ctx context.Context, q driver.Query) ([]driver.Status, error) {
			list, err := b.process.List(ctx, q)
			for _, s := range list {
				for i := range s.Waiters {
					s.Waiters[i].Trace = ""
				}
			}
			return list, err
		}
	}},
	{"takes a trace for one word", "trace", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if req.Trace != "" {
				req.Trace, req.Note, _ = strings.Cut(req.Trace+" "+req.Note, " ")
			}
		})
	}},
	{"refuses what is no trace", "trace", func(b *broken) {
		acquire := b.process.Acquire
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Trace != "" && !traceparent.Valid(req.Trace) {
				return driver.Grant{}, driver.ErrInvalid
			}
			return acquire(ctx, req)
		}
	}},
	{"hides minimum holds", "min-hold", func(b *broken) {
		b.list = func(ctx context.Context, q driver.Query) ([]driver.Status, error) {
			list, err := b.process.List(ctx, q)
			for i := range list {
				list[i].NotBefore = time.Time{}
			}
			return list, err
		}
	}},
}
