//go:build unix

package cli

import (
	"context"
	"log/slog"
	"sync"
)

// logPrinter shows people what a package logs, each message once: while the server is unreachable or the
// disk is full, package cron tries a tick again and again for half a tick.
type logPrinter struct {
	app   *App
	mu    sync.Mutex // guards shown
	shown map[string]bool
}

// Enabled reports whether a level is for people.
func (*logPrinter) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle shows a message, its error and what to do.
func (l *logPrinter) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown[r.Message] {
		return nil
	}
	if l.shown == nil {
		l.shown = map[string]bool{}
	}
	l.shown[r.Message] = true
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "error":
			text += ": " + a.Value.String()
		case "fix":
			text += "; try: " + a.Value.String()
		}
		return true
	})
	l.app.Say("%s", text)
	return nil
}

// WithAttrs returns l.
func (l *logPrinter) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns l.
func (l *logPrinter) WithGroup(string) slog.Handler { return l }
