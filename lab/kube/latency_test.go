package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/fencelock/fencelock"
)

// TestLatency logs how long an acquire with a release of a free lock takes, and a hand-over to a
// waiter from the call of release to the return of acquire: of fencelock, and of client-go with short
// periods and with the defaults of core clients.
func TestLatency(t *testing.T) {
	s := start(t)
	where := s.where(t)
	alone, handed := fencelockTimes(t, where)
	logTimes(t, "fencelock: acquire and release", alone)
	logTimes(t, "fencelock: hand-over", handed)
	klog.SetLogger(logr.Discard())
	client := kubernetes.NewForConfigOrDie(s.login(locksToken))
	for name, p := range map[string]periods{
		"client-go, RetryPeriod 100 ms": {2 * time.Second, 1200 * time.Millisecond, 100 * time.Millisecond},
		"client-go, RetryPeriod 2 s":    {15 * time.Second, 10 * time.Second, 2 * time.Second},
	} {
		namespace := s.namespace(t)
		alone = nil
		for range 300 {
			begun := time.Now()
			lead(t, client, namespace, "alone", p).resign()
			alone = append(alone, time.Since(begun))
		}
		logTimes(t, name+": acquire and release", alone)
		logTimes(t, name+": hand-over", handOvers(t, client, namespace, p))
	}
}

// logTimes logs percentiles.
func logTimes(t *testing.T, what string, all []time.Duration) {
	slices.Sort(all)
	at := func(percent int) time.Duration { return all[len(all)*percent/100].Round(10 * time.Microsecond) }
	t.Logf("%s: p50 %v, p90 %v, p99 %v (%d times)", what, at(50), at(90), at(99), len(all))
}

// fencelockTimes measures fencelock.
func fencelockTimes(t *testing.T, where string) (alone, handed []time.Duration) {
	here, there := fencelock.New(open(where), nil), fencelock.New(open(where), nil)
	acquire := func(locks *fencelock.Locker) *fencelock.Lock {
		lock, err := locks.Acquire(t.Context(), "latency")
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	for range 300 {
		begun := time.Now()
		if err := acquire(here).Release(); err != nil {
			t.Fatal(err)
		}
		alone = append(alone, time.Since(begun))
	}
	for range 300 {
		lock := acquire(here)
		got := make(chan time.Time)
		go func() { // ends when it has released
			next := acquire(there)
			got <- time.Now()
			_ = next.Release()
		}()
		time.Sleep(50*time.Millisecond + rand.N(50*time.Millisecond))
		begun := time.Now()
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		handed = append(handed, (<-got).Sub(begun))
	}
	return alone, handed
}

// periods are the settings of a leader election.
type periods struct{ lease, deadline, retry time.Duration }

// leader is a candidate that leads.
type leader struct {
	since  time.Time
	resign func() // returns when it has resigned
}

// lead takes part in a leader election and returns when it leads.
func lead(t *testing.T, client *kubernetes.Clientset, namespace, name string, p periods) leader {
	ctx, cancel := context.WithCancel(t.Context())
	leads, ended := make(chan time.Time, 1), make(chan struct{})
	config := electionConfig(client, namespace, name, fmt.Sprint("candidate-", rand.Uint64()))
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod = p.lease, p.deadline, p.retry
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { leads <- time.Now() },
		OnStoppedLeading: func() {},
	}
	go func() { // ends when it has resigned
		defer close(ended)
		leaderelection.RunOrDie(ctx, config)
	}()
	return leader{<-leads, func() { cancel(); <-ended }}
}

// handOvers measures hand-overs of several locks at once, since candidates look rarely.
func handOvers(t *testing.T, client *kubernetes.Clientset, namespace string, p periods) (all []time.Duration) {
	var mu sync.Mutex // guards all
	var work sync.WaitGroup
	for i := range 5 {
		work.Go(func() {
			name := fmt.Sprint("handed-", i)
			first := lead(t, client, namespace, name, p)
			for range 25 {
				next := make(chan leader)
				go func() { next <- lead(t, client, namespace, name, p) }() // ends when it leads
				time.Sleep(50*time.Millisecond + rand.N(p.retry))
				begun := time.Now()
				first.resign()
				first = <-next
				mu.Lock()
				all = append(all, first.since.Sub(begun))
				mu.Unlock()
			}
			first.resign()
		})
	}
	work.Wait()
	return all
}
