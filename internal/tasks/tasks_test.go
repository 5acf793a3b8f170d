package tasks_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/internal/tasks"
)

// TestClose: Close waits for calls, for their goroutines, and for what those start, and
// nothing begins after it.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := tasks.New()
		begun, over := time.Now(), 0
		if !g.Enter() {
			t.Fatal("no call may begin")
		}
		go func() { // ends after a second
			time.Sleep(time.Second)
			g.Leave()
		}()
		if !g.Go(func() {
			<-g.Closed.Done()
			time.Sleep(2 * time.Second)
			g.Spawn(func() {
				time.Sleep(time.Second)
				over++
			})
		}) {
			t.Fatal("no task may begin")
		}
		g.Close()
		if took := time.Since(begun); took != 3*time.Second || over != 1 {
			t.Errorf("closed after %v, with %d of the last tasks over", took, over)
		}
		if g.Enter() || g.Go(func() { t.Error("a task runs after Close") }) {
			t.Error("something begins after Close")
		}
		g.Close() // again
	})
}

// TestCloseAfter: Closed is cancelled when the time is over, and not before, or when nothing is left.
func TestCloseAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ task, want time.Duration }{{time.Second, time.Second}, {time.Hour, time.Minute}} {
			g := tasks.New()
			g.Go(func() { retry.Sleep(g.Closed, c.task) }) // ends with its time or with Closed
			begun := time.Now()
			if g.CloseAfter(time.Minute); time.Since(begun) != c.want || !g.Refuses() {
				t.Errorf("a task of %v: closed after %v, want %v", c.task, time.Since(begun), c.want)
			}
		}
	})
}
