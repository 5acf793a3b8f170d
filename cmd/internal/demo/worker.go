//go:build unix

package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/reexec"
)

// A worker is a process that takes a step for each line of its input, and writes what it has done.
type worker struct {
	*reexec.Worker
	name string
}

const jobName = "demo worker"

// orders are what a worker starts with.
type orders struct{ Name, Dir string }

// Job is the job of the workers, by its name. The program passes it to reexec.Main.
func Job() map[string]reexec.Job { return map[string]reexec.Job{jobName: reexec.Of(work)} }

// work takes the steps of a worker, each when it reads a line. It must lose its lock before the
// fourth step; the story asks only one of the workers for that.
func work(o orders, lines *bufio.Scanner) error {
	if err := os.Chdir(o.Dir); err != nil {
		return err
	}
	lines.Scan()
	locks := fencelock.New(client{}, nil).With(fencelock.Options{TTL: lease})
	lock, err := locks.Acquire(context.Background(), lockName)
	if err != nil {
		return err
	}
	defer lock.Release() // it is lost, as a rule
	token := lock.Token()
	for _, step := range []func() (string, error){
		func() (string, error) { return fmt.Sprintf("acquires the lock: token %d", token), nil },
		func() (string, error) {
			return fmt.Sprintf("writes %s and %s: both accept token %d", guarded, plain, token), writeBoth(lock, o)
		},
		func() (string, error) { return "checks the lock, still holds it, and is about to write", lock.Err() },
		func() (string, error) {
			refused := writeBoth(lock, o)
			if !errors.Is(refused, fence.ErrStale) {
				return "", fmt.Errorf("%s accepted the late write, or it failed: %w", guarded, refused)
			}
			return refused.Error(), nil
		},
		func() (string, error) {
			<-lock.Context().Done()
			return fmt.Sprintf("reports: %v", context.Cause(lock.Context())), nil
		},
	} {
		text, err := step()
		if err != nil {
			return err
		}
		if _, err := fmt.Println(text); err != nil || !lines.Scan() {
			return err
		}
	}
	return nil
}

// writeBoth writes the file without a guard and the one with it, whose refusal it returns. It
// ignores the end of the lock's context, as does every process that is paused after its last look
// at it.
func writeBoth(lock *fencelock.Lock, o orders) error {
	text := fmt.Appendf(nil, "from %s with token %d", o.Name, lock.Token())
	if err := os.WriteFile(plain, text, 0o600); err != nil {
		return err
	}
	return fence.ReplaceFile(context.WithoutCancel(lock.Context()), guarded, text, 0o600)
}
