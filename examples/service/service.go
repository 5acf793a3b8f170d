package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence/fencegoredis"
	"github.com/fencelock/fencelock/observe/promfencelock"
	"github.com/fencelock/fencelock/redislock/goredis"
)

// run is the service, from its first connection to its last. The order of the end is in stop.
func run(ctx context.Context, cfg config, log *slog.Logger) error {
	client := redis.NewClient(&redis.Options{Addr: cfg.redis, ContextTimeoutEnabled: true})
	engine := goredis.New(client, nil)
	metrics := promfencelock.New(nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	locks := fencelock.New(engine, &fencelock.Config{Tracer: metrics.Tracer(), Logger: log}).With(fencelock.Options{TTL: cfg.ttl})
	data := shop{client, fencegoredis.New(client, nil)}

	sender := newSender(locks, data, cfg.stop, log)
	admin := newAdmin(locks, sender.candidate, registry)
	s := &service{
		cfg:    cfg,
		log:    log,
		admin:  admin,
		api:    &http.Server{Handler: newPayments(locks, engine, metrics.Tracer(), data, cfg.charge, log), ReadHeaderTimeout: 5 * time.Second},
		probes: &http.Server{Handler: admin, ReadHeaderTimeout: 5 * time.Second},
		background: map[string]func(context.Context) error{
			"receipts": sender.run,
			"report":   newReport(locks, data, cfg, log).run,
		},
	}
	err := s.run(ctx)
	// Nothing uses locks any more, so none is lost by this.
	return errors.Join(err, engine.Close(), client.Close())
}

// service runs what the process serves and does.
type service struct {
	cfg        config
	log        *slog.Logger
	admin      *admin
	api        *http.Server
	probes     *http.Server
	background map[string]func(context.Context) error
}

// run returns when ctx has ended or a part has failed, and all parts have ended.
func (s *service) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var servers, background sync.WaitGroup
	defer servers.Wait()
	for server, addr := range map[*http.Server]string{s.probes: s.cfg.admin, s.api: s.cfg.listen} {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			return errors.Join(err, s.api.Close(), s.probes.Close())
		}
		servers.Go(func() { // ends with the server, in stop
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				fail(err)
			}
		})
	}
	for name, work := range s.background {
		background.Go(func() { // ends with ctx
			if err := work(ctx); err != nil {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	s.log.Info("service started", "api", s.cfg.listen, "admin", s.cfg.admin)
	<-ctx.Done()
	return errors.Join(cause(ctx), s.stop(&background))
}

// cause returns why the service ends, nil if it was asked to.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// stop ends the parts in order. The context of the background work has ended, so another instance
// takes the receipts over while this one drains.
func (s *service) stop(background *sync.WaitGroup) error {
	s.log.Info("service stops")
	s.admin.drain()
	time.Sleep(s.cfg.drain) // the load balancer still sends requests

	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.stop)
	defer cancel()
	err := s.api.Shutdown(ctx) // handlers return, and release their locks
	background.Wait()
	// A last scrape may have read the metrics until here.
	return errors.Join(err, s.probes.Close())
}
