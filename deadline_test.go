//go:build unix

package fencelock_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// beStopped makes TestDeadlineIsNeverLate the process that is stopped.
const beStopped = "FENCELOCK_TEST_BE_STOPPED"

// A process that is stopped between two readings of its clocks tells no deadline that is
// later than the true one.
func TestDeadlineIsNeverLate(t *testing.T) {
	if os.Getenv(beStopped) != "" {
		readDeadlines(t)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ready, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	child := exec.Command(exe, "-test.run=^TestDeadlineIsNeverLate$", "-test.v")
	child.ExtraFiles = []*os.File{w}
	child.Env = append(os.Environ(), beStopped+"=yes")
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	_, _ = ready.Read(make([]byte, 1)) // until the child has closed its end
	gone := make(chan error, 1)
	go func() { gone <- child.Wait() }() // ends with the child, which is told to finish below
	for range 60 {
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			if err := child.Process.Signal(s); err != nil {
				t.Fatalf("the child ended early: %v\n%s", err, &out)
			}
			time.Sleep(6 * time.Millisecond)
		}
	}
	if err := child.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}

// readDeadlines reads the deadline of one hold until SIGHUP.
func readDeadlines(t *testing.T) {
	finish := make(chan os.Signal, 1)
	signal.Notify(finish, syscall.SIGHUP)
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Margin: time.Second}).With(fencelock.Options{TTL: time.Hour})
	os.NewFile(3, "ready").Close()
	lock := acquire(t, locks, "a")
	truth := time.Now().Add(time.Hour - time.Second) // or a little earlier
	var worst time.Duration
	for reads := 0; ; reads++ {
		worst = max(worst, lock.Deadline().Sub(truth))
		select {
		case <-finish:
			fmt.Printf("%d readings\n", reads)
			if worst > 0 {
				t.Errorf("Deadline was up to %v later than the lease less its margin", worst)
			}
			return
		default:
		}
	}
}
