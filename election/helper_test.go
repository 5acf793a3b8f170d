package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

const (
	name = "billing"
	ttl  = 10 * time.Second
)

// process is one candidate of a process of its own.
type process struct {
	engine *memlock.Engine
	locks  *fencelock.Locker
	*election.Candidate
	changes *log
}

func start(engine *memlock.Engine, cfg election.Config) *process {
	p := &process{engine: engine, changes: &log{}}
	p.locks = fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl})
	cfg.OnChange = func(c election.Change) { p.changes.add("%v", c.State) }
	p.Candidate = election.New(p.locks, name, &cfg)
	return p
}

// running is a Run in a goroutine, which ends with cancel or with the work.
type running struct {
	cancel context.CancelCauseFunc
	done   chan error
}

func (p *process) run(work func(ctx context.Context) error) *running {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &running{cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- p.Run(ctx, work) }()
	synctest.Wait()
	return r
}

// obey works until told to stop.
func obey(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// log is a list of words.
type log struct {
	mu    sync.Mutex // guards words
	words []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.words = append(l.words, fmt.Sprintf(format, args...))
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.words, " ")
}

// throne checks that no two lead at once, and that terms only grow.
type throne struct {
	t      *testing.T
	sudden bool // terms are taken away by force: the next may begin before that is known

	mu   sync.Mutex // guards king, last, runs
	king context.Context
	last int64
	runs int
}

func (th *throne) sit(ctx context.Context) {
	th.mu.Lock()
	defer th.mu.Unlock()
	term, _ := fencelock.TokenFrom(ctx)
	if th.king != nil && th.king.Err() == nil && !th.sudden {
		th.t.Errorf("term %d begins while term %d stands", term, th.last)
	}
	if term <= th.last {
		th.t.Errorf("term %d after term %d", term, th.last)
	}
	th.king, th.last = ctx, term
	th.runs++
}

func (th *throne) rise(ctx context.Context) {
	th.mu.Lock()
	defer th.mu.Unlock()
	if th.king == ctx {
		th.king = nil
	}
}

func (th *throne) count() int {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.runs
}

// rule is work that sits on the throne until told to stop.
func (th *throne) rule(ctx context.Context) error {
	th.sit(ctx)
	defer th.rise(ctx)
	return obey(ctx)
}

func want(t *testing.T, what string, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s: got %v, want %v", what, err, target)
		}
	}
}

func wantState(t *testing.T, p *process, s election.State) {
	t.Helper()
	synctest.Wait()
	if got := p.State(); got != s {
		t.Errorf("state %v, want %v", got, s)
	}
}
