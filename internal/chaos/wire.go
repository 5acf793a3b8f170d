//go:build unix

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// envWorker makes a program that calls Main a worker. Its job, and the answers to what it asks,
// are lines on its input, its messages lines on its output. It ends with its input.
const envWorker = "FENCELOCK_CHAOS_WORKER"

// A Dialer connects to an address, such as "host:6379".
type Dialer func(ctx context.Context, addr string) (net.Conn, error)

// An Opener opens the engine of a URL, with connections made by dial, and returns what closes it.
type Opener func(ctx context.Context, url string, dial Dialer) (driver.Engine, func() error, error)

// A job is what a worker has to do.
type job struct {
	Kind     string // of the engine; empty for that of URL
	Known    known  // its servers
	URL      string // of somebody's own engine; it may hold a password
	Names    string // what the names of all locks begin with
	Twins    int    // how many names there are of each kind
	Worker   string // the lane
	Process  string // the name of this process, unique in the run
	Dir      string // of the histories and the guarded counters
	Seed     uint64
	Sabotage string
	Pause    time.Duration // between two calls of a hand, at least
}

// A message is what a worker says.
type message struct {
	Acquired int    `json:",omitempty"` // how often it has acquired a lock
	Dial     string `json:",omitempty"` // an address to which it needs a way
}

// A way is the answer to a message with an address.
type way struct{ Addr, Way string }

// Main serves as a worker if this process was started as one, and does not return then. A program
// or a test binary that runs rounds calls it first. open is for engines of URLs; it may be nil.
func Main(open Opener) {
	if os.Getenv(envWorker) == "" {
		return
	}
	w := &wire{in: bufio.NewReader(os.Stdin), out: json.NewEncoder(os.Stdout), ways: map[string]chan string{}}
	var j job
	if line, err := w.in.ReadBytes('\n'); err != nil || json.Unmarshal(line, &j) != nil {
		os.Exit(1) // the harness has ended
	}
	go w.listen()
	if err := j.work(w, open); err != nil {
		_, _ = io.WriteString(os.Stderr, "chaos worker: "+err.Error()+"\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// wire is how a worker talks with the harness.
type wire struct {
	in *bufio.Reader

	mu       sync.Mutex // guards the rest
	out      *json.Encoder
	ways     map[string]chan string
	acquired int
	told     time.Time
}

// listen reads answers until the harness ends, and this process with it.
func (w *wire) listen() {
	for {
		line, err := w.in.ReadBytes('\n')
		if err != nil {
			os.Exit(1)
		}
		var answer way
		if json.Unmarshal(line, &answer) == nil {
			w.way(answer.Addr) <- answer.Way // it has room for one, and each question has one answer
		}
	}
}

// way returns the channel that gets the way to an address.
func (w *wire) way(addr string) chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ways[addr] == nil {
		w.ways[addr] = make(chan string, 1)
		_ = w.out.Encode(message{Dial: addr}) // if the harness has ended, so does this process
	}
	return w.ways[addr]
}

// dial connects to an address through a proxy of the harness.
func (w *wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	ready := w.way(addr)
	select {
	case through := <-ready:
		ready <- through // for the next connection
		return (&net.Dialer{}).DialContext(ctx, "tcp", through)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// count reports an acquisition, sooner or later.
func (w *wire) count() {
	const often = 100 * time.Millisecond
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acquired++
	if w.acquired == 1 || time.Since(w.told) > often {
		w.told = time.Now()
		_ = w.out.Encode(message{Acquired: w.acquired})
	}
}
