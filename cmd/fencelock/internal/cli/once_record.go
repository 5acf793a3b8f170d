//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// oncePrefix begins the names of the locks and records.
const oncePrefix = "once/"

// onceRecord is what is stored of a key: a line of JSON, and the output behind it. One that
// is running has no lease of its own: whoever has the lock may take it over.
type onceRecord struct {
	Done      bool      `json:"done"`    // false: it runs, or was lost
	Owner     string    `json:"owner"`   // of the lock, unique to the run
	Token     int64     `json:"token"`   // of the lock
	Payload   string    `json:"payload"` // its fingerprint
	Host      string    `json:"host"`    // of the run, with its PID
	PID       int       `json:"pid"`
	Code      int       `json:"code"`           // exit code of the command
	Ended     time.Time `json:"ended,omitzero"` // by the clock of Host
	Stdout    int       `json:"stdout"`         // bytes
	StdoutCut bool      `json:"stdout_cut,omitempty"`
	StderrCut bool      `json:"stderr_cut,omitempty"`

	stdout, stderr []byte // what was kept of them
	version        string // of the record; empty if there is none
}

// encode returns the record as it is stored.
func (r onceRecord) encode() []byte {
	r.Stdout = len(r.stdout)
	head, err := json.Marshal(r)
	if err != nil {
		panic(err) // texts, numbers and times always marshal
	}
	return bytes.Join([][]byte{head, {'\n'}, r.stdout, r.stderr}, nil)
}

// overError says that the job is over, and how it went.
type overError struct{ record onceRecord }

// Error says how the run that is over has ended.
func (e *overError) Error() string { return fmt.Sprintf("done, with exit code %d", e.record.Code) }

// onceJob is the job of a key, as one caller sees it.
type onceJob struct {
	records     driver.Records
	name        string        // of the lock and of the record
	payload     string        // its fingerprint
	retryFailed bool          // a failure is not repeated
	retention   time.Duration // of the outcome
	patience    time.Duration // how long it is tried to store the outcome

	lock *fencelock.Lock // of this caller's run
	own  onceRecord      // as it stands, as far as we know
}

const (
	leastRunning = 24 * time.Hour   // how long a run that has no outcome is remembered at least
	leastStoring = 10 * time.Second // how long it is tried to store an outcome, however short the lease
	firstStoring = 10 * time.Millisecond
	lastStoring  = time.Second
)

// look reads the record.
func (j *onceJob) look(ctx context.Context) (onceRecord, error) {
	rec, err := j.records.Get(ctx, j.name)
	if err != nil || rec.Version == "" {
		return onceRecord{}, err
	}
	r := onceRecord{version: rec.Version}
	head, output, _ := bytes.Cut(rec.Value, []byte("\n"))
	if err := json.Unmarshal(head, &r); err != nil || r.Stdout < 0 || r.Stdout > len(output) {
		return onceRecord{}, fmt.Errorf("%w: the record %q was written by another program", driver.ErrConfig, j.name)
	}
	r.stdout, r.stderr = output[:r.Stdout], output[r.Stdout:]
	return r, nil
}

// over returns nil if nothing is known that keeps the command from being run; see judge.
func (j *onceJob) over(ctx context.Context) error {
	r, err := j.look(ctx)
	if err != nil {
		return err
	}
	return j.judge(r)
}

// judge returns nil if the command is to be run, an *overError if its outcome is to be
// repeated, or that the key was used for something else.
func (j *onceJob) judge(r onceRecord) error {
	switch {
	case r.version == "":
		return nil
	case r.Payload != j.payload:
		return &exitError{code: exitUsage, err: fmt.Errorf("the key was used with another command line or payload, by pid %d on %s\ntry: another key, or --payload if the command line may differ", r.PID, r.Host)}
	case r.Done && (r.Code == 0 || !j.retryFailed):
		return &overError{r}
	}
	return nil
}

// claim notes that the command runs under lock. From then on no other run can complete,
// unless it has a greater token.
func (j *onceJob) claim(ctx context.Context, lock *fencelock.Lock) error {
	j.lock = lock
	host, _ := os.Hostname() // for people
	for {
		old, err := j.look(ctx)
		if err == nil {
			err = j.judge(old)
		}
		if err != nil {
			return err
		}
		if old.Token >= lock.Token() {
			return j.lost()
		}
		j.own = onceRecord{
			Owner: lock.Owner(), Token: lock.Token(), Payload: j.payload, Host: host, PID: os.Getpid(), version: old.version,
		}
		keep := max(j.retention, leastRunning)
		err = j.swap(ctx, j.own, keep)
		if errors.Is(err, driver.ErrUnavailable) {
			if now, _ := j.look(ctx); now.Owner == lock.Owner() { // ours; stored once more it is as safe as the engine makes it
				j.own.version = now.version
				err = j.swap(ctx, j.own, keep)
			}
		}
		if !errors.Is(err, driver.ErrConflict) { // then somebody has just completed
			return err
		}
	}
}

// swap stores r in place of what we know.
func (j *onceJob) swap(ctx context.Context, r onceRecord, ttl time.Duration) error {
	version, err := j.records.Swap(ctx, j.name, r.encode(), j.own.version, ttl)
	if err == nil {
		j.own, j.own.version = r, version
	}
	return err
}

// complete stores the outcome of our run. If another run has begun since, or could have,
// it is refused: the error is an ErrLost. An outcome whose answer was lost is stored once more,
// since too few replicas may have it, and so is one that the server refuses, which may not be
// promoted yet.
func (j *onceJob) complete(r onceRecord) error {
	r.Done, r.Ended = true, time.Now().UTC()
	r.Owner, r.Token, r.Payload, r.Host, r.PID = j.own.Owner, j.own.Token, j.own.Payload, j.own.Host, j.own.PID
	ctx, cancel := context.WithTimeout(context.Background(), j.patience)
	defer cancel()
	for pause := retry.NewBackoff(firstStoring, lastStoring); ; {
		err := j.swap(ctx, r, j.retention)
		if err == nil || errors.Is(err, driver.ErrInvalid) {
			return err
		}
		if now, unread := j.look(ctx); unread == nil {
			if now.Owner != r.Owner && (now.version != "" || j.lock.Err() != nil) {
				return j.lost()
			}
			j.own.version = now.version // "" if it has expired under our lock
		}
		if !pause.Wait(ctx) {
			return &exitError{code: exitUnavailable, err: fmt.Errorf("%w: its outcome could not be stored: %w", driver.ErrUnavailable, err)}
		}
	}
}

// lost is the error of a run that is not the last one.
func (j *onceJob) lost() error {
	return &fencelock.LostError{Name: j.name, Token: j.lock.Token(), Deadline: j.lock.Deadline(), Reason: errRunLater}
}

var errRunLater = errors.New("a later run has begun; this one has no outcome")
