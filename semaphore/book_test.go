//go:build unix

package semaphore_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/crew"
)

// book is the log that all workers append to, a line at a time: what it says stands
// at once stood at once, since a permit is written down after it was granted and
// crossed out before it is given back. The line of a permit is "+", "-" or "lost",
// the process, the weight and the token; before that it may be "waits" and the
// process. The test itself writes "gone" and a process that it kills or froze.
type book struct {
	t    *testing.T
	path string
	file *os.File // at the end of what was read
	rest string   // a line that is not complete yet

	live    map[int]int   // the weight that each process has
	lost    map[int]bool  // processes that noticed a loss
	waits   int           // how many requests were made to wait
	turns   map[int]int   // how many permits each process had
	permits int           // how many were written
	token   map[int]int64 // of the last permit of each process
	taken   int           // the sum of live
	full    int           // how often it reached the size
	most    int           // the highest it has been
	lower   int           // the lowered size in force; 0 while there is none
	since   int64         // permits with greater tokens obey it
}

// openBook makes an empty book.
func openBook(t *testing.T) *book {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock-book-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "book")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &book{t: t, path: path, file: file, live: map[int]int{}, lost: map[int]bool{}, turns: map[int]int{}, token: map[int]int64{}}
}

// gone writes that a process is about to be killed, or stands still: before the
// engine can know, and give its permit to another.
func (b *book) gone(w *crew.Worker) {
	b.t.Helper()
	file, err := os.OpenFile(b.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	err = note(file, "gone", w.Process().Pid)
	if err = errors.Join(err, file.Close()); err != nil {
		b.t.Fatal(err)
	}
}

// note writes a line, which crosses no page: a kill in the middle of the write leaves all of
// it or nothing.
func note(w io.Writer, words ...any) error {
	_, err := fmt.Fprintf(w, "%-63s\n", strings.TrimSuffix(fmt.Sprintln(words...), "\n"))
	return err
}

// read takes in what was written since the last time.
func (b *book) read() {
	b.t.Helper()
	text, err := io.ReadAll(b.file)
	if err != nil {
		b.t.Fatal(err)
	}
	lines := strings.Split(b.rest+string(text), "\n")
	b.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		b.enter(line)
	}
}

// enter takes in one line, and fails the test if it says that too many are in.
func (b *book) enter(line string) {
	b.t.Helper()
	var what string
	var pid, weight int
	var token int64
	_, _ = fmt.Sscan(line, &what, &pid, &weight, &token) // "gone" has no weight
	if what == "waits" {
		b.waits++
		return
	}
	if what != "+" {
		b.lost[pid] = b.lost[pid] || what == "lost"
		b.taken -= b.live[pid]
		delete(b.live, pid)
		return
	}
	b.live[pid] = weight
	b.taken += weight
	b.turns[pid]++
	b.permits++
	b.token[pid] = token
	b.most = max(b.most, b.taken)
	if b.taken == size {
		b.full++
	}
	if b.taken > size {
		b.t.Fatalf("%d at once: %v", b.taken, b.live)
	}
	if b.lower > 0 && token > b.since && b.taken > b.lower && len(b.live) > 1 {
		b.t.Fatalf("%d at once, after the size was lowered to %d: %v", b.taken, b.lower, b.live)
	}
}

// until reads on until done says so, for a minute at most, and returns how long it
// took.
func (b *book) until(what string, done func() bool) time.Duration {
	b.t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		b.read()
		took := time.Since(begun)
		if done() {
			return took
		}
		if took > time.Minute {
			b.t.Fatalf("not in a minute: %s; taken %d, live %v, %d permits so far", what, b.taken, b.live, b.permits)
		}
	}
}

// untilFull reads on until the size is reached once more.
func (b *book) untilFull(what string) time.Duration {
	b.t.Helper()
	b.read()
	before := b.full
	return b.until(what, func() bool { return b.full > before })
}
