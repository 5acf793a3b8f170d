//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// campaign waits until this process leads, or until a signal ends the wait.
func (c *electCmd) campaign(a *app, engine driver.Engine) (*fencelock.Lock, chan os.Signal, error) {
	return a.await(func(ctx context.Context) (*fencelock.Lock, error) {
		end, stop := drainSignals(c.last)
		if end != nil {
			return nil, gaveUp(end)
		}
		defer stoppable(stop)()
		retry.Sleep(ctx, c.pause)
		line := newWaitLine(a, c.Name, 0) // to stand by is its work
		defer line.stop()
		locker := c.locker(engine, fencelock.Options{OnWait: func(info driver.WaitInfo) {
			if trouble(info) == "" {
				c.reached.Store(true)
			}
			line.update(info)
		}})
		silence := &outage{app: a}
		over, found := context.WithCancel(ctx)
		defer found()
		go silence.probeEngine(over, locker, c.Name) // ends with the campaign
		lock, err := c.insist(ctx, locker, silence)
		if err == nil {
			c.reached.Store(true)
		}
		return lock, err
	})
}

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// insist takes the lock. Failures that may pass are tried again, if the engine has
// ever answered: until then the URL may just be wrong.
func (c *electCmd) insist(ctx context.Context, locker *fencelock.Locker, silence *outage) (*fencelock.Lock, error) {
	for pause := retry.NewBackoff(firstRetry, lastRetry); ; pause.Wait(ctx) {
		lock, err := locker.Acquire(ctx, c.Name)
		if err == nil || ctx.Err() != nil || !c.reached.Load() || !passes(err) {
			return lock, err
		}
		silence.note(err)
	}
}

// drainSignals ends a listener and returns what came too late for the command of the last
// term: a signal to end, or nil, and whether the terminal wants us to stop.
func drainSignals(signals chan os.Signal) (end os.Signal, stop bool) {
	if signals == nil {
		return nil, false
	}
	signal.Stop(signals)
	for {
		select {
		case s := <-signals:
			switch s {
			case unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP:
				return s, false
			case unix.SIGTSTP:
				stop = true
			}
		default:
			return nil, stop
		}
	}
}

// stoppable lets the terminal stop us while no command runs, until the function it
// returns is called: TSTP does nothing of itself once a term has listened to it. With
// now it has been asked for already.
func stoppable(now bool) func() {
	stops, done := make(chan os.Signal, 1), make(chan struct{})
	if now {
		stops <- unix.SIGTSTP
	}
	if !signal.Ignored(unix.SIGTSTP) {
		signal.Notify(stops, unix.SIGTSTP)
	}
	go func() { // ends when done is closed
		for {
			select {
			case <-stops:
				stopOwnGroup(stops)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(stops)
		close(done)
	}
}
