package pgrecords

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// Listener is Records that report changes: a trigger of the table sends a notification (NOTIFY) for
// each change of any program, and one connection of the process receives them (LISTEN). While that
// connection is lost, calls of Await return driver.ErrUnavailable, and locks poll. It is safe for
// concurrent use.
//
// Commits of transactions with a notification wait for one another in PostgreSQL, in all databases of
// the server. Some thousand changes a second are possible.
type Listener struct {
	*Records
	direct *pgconn.Config
	cancel context.CancelFunc
	done   chan struct{} // closed when no goroutine runs any more

	mu      sync.Mutex                        // guards the fields below
	ready   bool                              // notifications arrive
	why     error                             // why none arrive
	changed chan struct{}                     // closed when ready or why changes
	waiters map[string]map[chan struct{}]bool // by payload
}

var _ driver.Awaiter = (*Listener)(nil)

// errNotYet is why no notifications arrive before the first connection.
var errNotYet = errors.New("the connection is being made")

// Listen returns records that report their changes. It connects to the server of direct in the
// background, and again when that connection is lost. It must not lead through a pooler in transaction
// or statement mode, and it must lead to the primary. [Listener.Init] creates the trigger. Close the
// Listener after use.
func (r *Records) Listen(direct *pgconn.Config) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		Records: r, direct: direct.Copy(), cancel: cancel, done: make(chan struct{}), why: errNotYet,
		changed: make(chan struct{}), waiters: map[string]map[chan struct{}]bool{},
	}
	go l.run(ctx) // ends with Close
	return l
}

// Close ends the connection that listens. It returns nil.
func (l *Listener) Close() error {
	l.cancel()
	<-l.done
	return nil
}

// Schema returns the statements that create the table and its trigger. The trigger is for the owner of
// the table.
func (l *Listener) Schema() []string { return append(l.Records.Schema(), l.trigger()...) }

// triggerName returns the name of the trigger. That of its function has the schema of the table, too.
func (l *Listener) triggerName() string {
	return strings.ToLower(l.table[strings.LastIndexByte(l.table, '.')+1:]) + "_notify"
}

// The channel has the number of the table, so it does not depend on how a program writes the name. The
// payload is a hash, since a key may be longer than a payload may be.
func (l *Listener) trigger() []string {
	return []string{
		`CREATE OR REPLACE FUNCTION ` + l.table + `_notify() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_catalog.pg_notify('fencelock_' || TG_RELID, pg_catalog.encode(pg_catalog.sha256(NEW.record_key), 'hex'));
    RETURN NULL;
END $$`,
		`CREATE OR REPLACE TRIGGER ` + l.triggerName() + ` AFTER INSERT OR UPDATE ON ` + l.table + `
    FOR EACH ROW EXECUTE FUNCTION ` + l.table + `_notify()`,
	}
}

// hasTrigger returns a row if the table has an enabled trigger.
const hasTrigger = "SELECT 1 FROM pg_catalog.pg_trigger WHERE tgrelid = to_regclass($1::text) AND tgname = $2::text AND tgenabled IN ('O', 'A')"

// Init creates the table and the trigger if they do not exist.
func (l *Listener) Init(ctx context.Context) error {
	if err := l.Records.Init(ctx); err != nil {
		return err
	}
	found, err := l.call(ctx, hasTrigger, []byte(l.table), []byte(l.triggerName()))
	if err != nil || len(found.Rows) > 0 {
		return err
	}
	return l.execute(ctx, l.trigger())
}

// Ready returns nil as soon as notifications arrive. If none do before ctx ends, it returns why.
func (l *Listener) Ready(ctx context.Context) error {
	for {
		l.mu.Lock()
		ready, why, changed := l.ready, l.why, l.changed
		l.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if errors.Is(why, driver.ErrConfig) {
				return why
			}
			return failure(why, ctx.Err())
		}
	}
}

// run listens until Close.
func (l *Listener) run(ctx context.Context) {
	defer close(l.done)
	for pause := retry.NewBackoff(50*time.Millisecond, 5*time.Second); ; {
		began := time.Now()
		l.set(false, l.session(ctx))
		if time.Since(began) > beat {
			pause.Reset()
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// beat is how often a session is tested, and patience is how long a test, or a connection, may take.
const beat, patience = 10 * time.Second, 4 * time.Second

// session connects and delivers notifications until the connection fails.
func (l *Listener) session(ctx context.Context) error {
	test := "" // the payload of the test that is running
	received := false
	cfg := l.direct.Copy()
	cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		if n.Payload == test {
			received = true
			return
		}
		l.wake(n.Payload)
	}
	conn, err := l.subscribe(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	for {
		test, received = "test "+rand.Text(), false
		sent := l.notify(ctx, test)
		if err := deliver(ctx, conn, patience, &received); err != nil {
			return err
		}
		switch err := <-sent; {
		case received:
			l.set(true, nil)
		case err == nil:
			return fmt.Errorf("%w: a notification did not arrive: the connection that listens must lead to the same database, and not through a pooler in transaction mode", driver.ErrConfig)
		}
		if err := deliver(ctx, conn, beat, new(bool)); err != nil {
			return err
		}
	}
}

// subscribe connects and listens.
func (l *Listener) subscribe(ctx context.Context, cfg *pgconn.Config) (*pgconn.PgConn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	found := conn.ExecParams(ctx, "SELECT to_regclass($1::text)::oid::bigint, EXISTS ("+hasTrigger+")",
		[][]byte{[]byte(l.table), []byte(l.triggerName())}, nil, nil, nil).Read()
	switch err = found.Err; {
	case err != nil:
	case string(found.Rows[0][1]) != "t":
		err = fmt.Errorf("%w: the table %s has no trigger (Init of the Listener creates it)", driver.ErrConfig, l.table)
	default:
		err = conn.Exec(ctx, "LISTEN fencelock_"+string(found.Rows[0][0])).Close()
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// notify sends a notification through the pool. The channel gets the result.
func (l *Listener) notify(ctx context.Context, payload string) <-chan error {
	sent := make(chan error, 1)
	go func() { // ends at its time limit
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := l.call(ctx, "SELECT 1 FROM pg_catalog.pg_notify('fencelock_' || to_regclass($1::text)::oid, $2::text)", []byte(l.table), []byte(payload))
		sent <- err
	}()
	return sent
}

// deliver receives notifications for a time, or until done is true.
func deliver(ctx context.Context, conn *pgconn.PgConn, d time.Duration, done *bool) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for !*done {
		if err := conn.WaitForNotification(limited); err != nil {
			if limited.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
				return nil // the time is over
			}
			return err
		}
	}
	return nil
}

// set notes whether notifications arrive, and makes all waiters read.
func (l *Listener) set(ready bool, why error) {
	l.mu.Lock()
	same := ready && l.ready
	l.ready, l.why = ready, why
	if !same {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.mu.Unlock()
	if !same {
		l.wake("")
	}
}

// wake makes the waiters of a key read, or all of them.
func (l *Listener) wake(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, all := range l.waiters {
		if payload != "" && key != payload {
			continue
		}
		for c := range all {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}

// quiet is how often Await reads while nothing is reported: a record may expire.
const quiet = 5 * time.Second

// Await implements driver.Awaiter. While no notifications arrive, it reads once and returns
// driver.ErrUnavailable, so that the caller polls at its own pace.
func (l *Listener) Await(ctx context.Context, key, version string) (driver.Record, error) {
	sum := sha256.Sum256([]byte(key))
	payload, woken := hex.EncodeToString(sum[:]), make(chan struct{}, 1)
	l.join(payload, woken)
	defer l.leave(payload, woken)
	for {
		rec, err := l.Get(ctx, key)
		if err != nil || rec.Version != version {
			return rec, err
		}
		ready := l.reports()
		if ready == nil {
			if !retry.Nap(ctx, quiet, woken) {
				return driver.Record{}, ctx.Err()
			}
			ready = l.reports() // when the connection is lost, thousands of calls come here
		}
		if ready != nil {
			return driver.Record{}, ready
		}
	}
}

// reports returns an error while no notifications arrive.
func (l *Listener) reports() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready {
		return nil
	}
	return fmt.Errorf("%w: no notifications arrive: %w", driver.ErrUnavailable, l.why)
}

func (l *Listener) join(payload string, woken chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiters[payload] == nil {
		l.waiters[payload] = map[chan struct{}]bool{}
	}
	l.waiters[payload][woken] = true
}

func (l *Listener) leave(payload string, woken chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.waiters[payload], woken); len(l.waiters[payload]) == 0 {
		delete(l.waiters, payload)
	}
}
