package fencelock

import (
	"log/slog"

	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/hold"
)

// Attended reports whether a timer that has not fired yet is running for the locks
// of l, or somebody is at work and will set it; and true if no lock is held.
func Attended(l *Locker) bool {
	r := l.renewer
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plan.Attended(clock.Mono())
}

// NewNotifier returns what tells notices one after the other, of which so many may
// wait.
func NewNotifier(logger *slog.Logger, most int) func(notice func()) {
	return newNotifier(Config{Logger: logger, Tracer: &Tracer{}}, most).tell
}

// Joined is how many contexts of ContextWith l keeps.
func Joined(l *Lock) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.joined)
}

// ReleaseWait is how long a caller whose time is over still waits for a release.
const ReleaseWait = releaseWait

// Phase is what has become of a Lock.
type Phase = phase

// Phases for TestPhases.
const (
	PhaseHeld     = phaseHeld
	PhaseReleased = phaseReleased
	PhaseDetached = phaseDetached
)

// Next is next.
func (p phase) Next(h *hold.Hold, kind hold.Kind, ending phase) phase { return p.next(h, kind, ending) }

func (p phase) String() string {
	return [...]string{"requested", "held", "stopping", "released", "detached", "lost", "expired", "returned"}[p]
}
