package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
)

// Queue is a list of tasks, and the place where their results are kept. A task is
// never gone before it has its result: one that was given out and is not done
// stays among those that Taken lists, until somebody puts it back.
//
// Begin and Finish are the guard: each task remembers the greatest fencing token
// that came with it, and a smaller one is refused.
type Queue interface {
	// Add appends a task of the given length.
	Add(ctx context.Context, length time.Duration) error
	// Next gives out a task that waits; errNone if none does. Two workers may get
	// the same task, one after the other: the lock decides who does it.
	Next(ctx context.Context) (Task, error)
	// Taken returns the tasks that were given out and are not done.
	Taken(ctx context.Context) ([]Task, error)
	// PutBack lets a task that was given out wait again, unless it is done.
	PutBack(ctx context.Context, t Task) error
	// Begin notes that a holder of the task's lock starts, and from then on shuts
	// out every earlier one. It returns how often the task was begun; errRefused if
	// it is done, or if a greater token was here.
	Begin(ctx context.Context, t Task, token int64) (tries int, err error)
	// Finish writes the result; errRefused as Begin.
	Finish(ctx context.Context, t Task, token int64, result string) error
	// States tells everything about every task.
	States(ctx context.Context) ([]State, error)
}

var (
	errNone    = errors.New("no task waits")
	errRefused = errors.New("the task is done, or a greater token was here")
)

// Task is something to do.
type Task struct {
	ID     int64
	Length time.Duration
}

// lockName is the name of the lock that whoever does t holds.
func (t Task) lockName() string { return fmt.Sprintf("%s%d", lockPrefix, t.ID) }

const lockPrefix = "task/"

// State is what became of a task.
type State struct {
	ID      int64
	Tries   int     // how often it was begun
	Token   int64   // the greatest token that came with it
	Results []int64 // the tokens of its results: one, if all is well
}

// A store is a queue, and locks on the same server.
type store struct {
	queue Queue
	locks func(*fencelock.Config) *fencelock.Locker
	close func()
}

// open connects to a server.
func open(ctx context.Context, url string) (store, error) {
	switch scheme, _, _ := strings.Cut(url, "://"); scheme {
	case "redis", "rediss":
		return openRedis(url)
	case "postgres", "postgresql":
		return openPostgres(ctx, url)
	}
	return store{}, fmt.Errorf("where is the queue? give -url redis://... or -url postgres://...")
}
