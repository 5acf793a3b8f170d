//go:build unix

// Package top draws the screen of fencelock top: the locks of an engine, and what keys do to them.
//
// top.go has the loop and asks the engine. rows.go selects and sorts what is shown. keys.go handles
// keys. draw.go and table.go draw, and text.go prepares text for cells.
package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gdamore/tcell/v3"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/watch"
)

const (
	patience = 10 * time.Second // how long a listing or a break may take
	slow     = 2 * time.Second  // after this time, a listing without an answer is reported
	retry    = 5 * time.Second  // the most time between a failed listing and the next one
)

// Config holds what the screen shows and does.
type Config struct {
	Title string        // what is listed, such as a URL without its password
	Every time.Duration // the least time between two listings
	List  func(context.Context) ([]fencelock.Status, error)
	Break func(ctx context.Context, name, owner, reason string) (token int64, err error)
}

// Open returns the terminal of this process as a screen. It sends no queries: over a slow
// connection, an answer could arrive late and be the input of the next program.
func Open() (tcell.Screen, error) {
	tcell.SetEncodingFallback(tcell.EncodingFallbackASCII)
	screen, err := tcell.NewScreen(tcell.OptNegotiation(false))
	if err == nil {
		err = screen.Init()
	}
	return screen, err
}

// top is the state of the screen. All of it belongs to the goroutine of Run.
type top struct {
	cfg    Config
	ctx    context.Context
	screen tcell.Screen
	work   sync.WaitGroup    // goroutines that ask the engine
	done   chan func() error // what to do with their answers

	signals chan os.Signal   // TSTP and CONT
	due     <-chan time.Time // when the next listing is wanted
	wanted  bool             // a listing is to be sent as soon as that is possible
	asked   time.Time        // when the current listing was sent; zero if there is none
	pause   time.Duration    // the current time between two listings

	list   []fencelock.Status // the last one, ordered by name
	sent   time.Time          // when list was asked for
	at     time.Time          // when it was answered; zero before the first
	err    error              // of the last listing
	gap    bool               // something may have happened since list that no listing shows
	lost   int                // leases that expired between two listings
	began  time.Time
	broken []string

	view
}

// Run shows the screen until the user quits, ctx ends or the terminal is closed. It returns what
// was broken, a line each. The error is that of the first listing or of the terminal.
func Run(ctx context.Context, screen tcell.Screen, cfg Config) (broken []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	t := &top{
		cfg: cfg, ctx: ctx, screen: screen, done: make(chan func() error, 2), signals: make(chan os.Signal, 2),
		wanted: true, began: time.Now(), pause: cfg.Every,
	}
	defer t.work.Wait()
	defer cancel()
	defer screen.Fini() // also if this goroutine panics
	supervise.Notify(t.signals, unix.SIGTSTP, unix.SIGCONT)
	defer signal.Stop(t.signals)
	screen.EnablePaste()
	for from, to := range fallbacks {
		screen.RegisterRuneFallback(from, to)
	}
	switch err = t.loop(); {
	case errors.Is(err, errQuit):
		err = nil
	case err != nil && !t.at.IsZero():
		err = fmt.Errorf("%w: %w", ErrTerminal, err)
	}
	return t.broken, err
}

// ErrTerminal is the error of Run if the terminal was closed.
var ErrTerminal = errors.New("the terminal is gone")

// errQuit ends the loop without an error.
var errQuit = errors.New("quit")

// loop draws and handles what happens until that returns an error.
func (t *top) loop() (err error) {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for err == nil {
		if t.wanted && !t.paused && t.asked.IsZero() {
			t.ask()
		}
		t.draw()
		select {
		case <-t.ctx.Done():
			return nil
		case ev := <-t.screen.EventQ():
			err = t.event(ev)
		case then := <-t.done:
			err = then()
		case s := <-t.signals:
			err = t.stopped(s)
		case <-t.due:
			t.wanted = true
		case <-clock.C:
		}
	}
	return err
}

// background runs work in a goroutine, which ends when work has ended. The loop then calls what
// work returned. A panic goes on in the loop, since Run restores the terminal.
func (t *top) background(work func(context.Context) (then func() error)) {
	t.work.Go(func() {
		ctx, cancel := context.WithTimeout(t.ctx, patience)
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				text := fmt.Sprintf("%v\n\n%s", p, debug.Stack())
				t.done <- func() error { panic(text) }
			}
		}()
		t.done <- work(ctx)
	})
}

// ask sends a listing. There is one at a time.
func (t *top) ask() {
	sent := time.Now()
	t.wanted, t.due, t.asked = false, nil, sent
	t.background(func(ctx context.Context) func() error {
		list, err := t.cfg.List(ctx)
		at := time.Now()
		return func() error { return t.answered(list, err, sent, at) }
	})
}

// answered takes the answer of a listing. With an error, list may have the names that could be
// read.
func (t *top) answered(list []fencelock.Status, err error, sent, at time.Time) error {
	t.asked, t.pause = time.Time{}, watch.Pause(t.cfg.Every, at.Sub(sent))
	if err != nil && list == nil { // it may have taken long only because the engine is unreachable
		t.pause = min(t.pause, max(t.cfg.Every, retry))
	}
	t.due = time.After(t.pause)
	if t.paused { // the picture must not change
		return nil
	}
	t.err = err
	if err != nil && list == nil {
		t.gap = true
		if t.at.IsZero() {
			return err
		}
		return nil
	}
	if !t.gap && !t.at.IsZero() {
		for _, ev := range watch.Changes(t.list, list, at.Sub(t.sent), at) {
			if ev.Kind == driver.EventLost {
				t.lost++
			}
		}
	}
	t.list, t.sent, t.at, t.gap = list, sent, at, false
	t.arrange()
	return nil
}

// stale reports whether the picture is older than it should be.
func (t *top) stale() bool {
	silent := !t.asked.IsZero() && time.Since(t.asked) > slow
	return !t.at.IsZero() && !t.paused && (silent || t.err != nil && t.gap)
}

// breakLock breaks an acquisition for a reason, and then makes a listing due. The engine does not
// break the lock of a successor.
func (t *top) breakLock(name, owner, holder, reason string) {
	what := fmt.Sprintf("%s, held by %s", word(name), holder)
	t.breaking, t.message = true, "breaking "+what+" ..."
	t.background(func(ctx context.Context) func() error {
		token, err := t.cfg.Break(ctx, name, owner, reason)
		return func() error {
			t.breaking, t.wanted = false, true
			switch {
			case token != 0: // with an error, the holder could not be reached yet
				t.message = fmt.Sprintf("broke %s; the new token is %d", what, token)
				if err != nil {
					t.message += "; " + line(err)
				}
				t.broken = append(t.broken, t.message)
			case errors.Is(err, driver.ErrNotHeld):
				t.message = fmt.Sprintf("nothing was broken: %s does not hold %s any more", holder, word(name))
			default:
				t.message = fmt.Sprintf("could not break %s: %s", what, line(err))
			}
			return nil
		}
	})
}

// stopped handles the signals that stop and continue this process. After a SIGSTOP, the shell has
// changed the modes of the terminal. SIGCONT also comes when the terminal is closed; the error says
// so.
func (t *top) stopped(s os.Signal) error {
	_ = t.screen.Suspend()
	if s == unix.SIGTSTP {
		supervise.StopOwnGroup(t.signals)
		select {
		case <-t.signals: // CONT
		default:
		}
	}
	t.gap, t.wanted = true, true
	return t.screen.Resume()
}
