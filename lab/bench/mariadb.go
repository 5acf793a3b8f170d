package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/sqlrecords"
)

// mariadbSuite is locks in records of MariaDB and what people use there.
var mariadbSuite = suite{
	name:   "mariadb",
	inside: true, // its numbers are in docs/engines/records.md
	title:  "MariaDB",
	notes: "The server has its default settings: each commit waits for the disk. `bare` is `GET_LOCK` and\n" +
		"`RELEASE_LOCK` on one connection, one in each process of a hand-over. It writes nothing, and has\n" +
		"no token, no lease and no list of holders.\n",
	contestants: []contestant{
		{name: bare, open: openGetLock},
		{name: ours, open: openOursOnMariaDB, renews: true},
	},
	signal:   contestant{name: bare, open: openGetLock},
	measures: []measure{{"alone", alone}, {"handover", handover}, {"waiting", waitingInRecords}},
	per:      200,
	start:    startMariaDB,
}

// waitingInRecords counts the statements of a thousand waiters for one name.
func waitingInRecords(a *arena, s settings) ([]row, error) {
	clients := or(s, 10, 2)
	r := row{what: fmt.Sprintf("%d waiters in %d clients: statements per second while nothing happens", 100*clients, clients), values: map[string]float64{}}
	for _, c := range a.libraries() {
		rate, err := a.crowdAsleep(c, clients, or(s, 20*time.Second, 2*time.Second), s)
		if err != nil {
			return nil, err
		}
		r.values[c.name] = rate
	}
	return []row{r}, nil
}

func openOursOnMariaDB(p *process) (client, error) {
	db, err := sql.Open("mysql", p.addr)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(8)
	engine := recordlock.New(sqlrecords.New(db, sqlrecords.MySQL, nil), nil)
	shut := func() {
		_ = engine.Close()
		_ = db.Close()
	}
	return ourClient{fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl}), shut}, nil
}

// getLockClient has one connection.
type getLockClient struct {
	db   *sql.DB
	conn *sql.Conn
}

func openGetLock(p *process) (client, error) {
	db, err := sql.Open("mysql", p.addr+"?interpolateParams=true")
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(context.Background())
	return getLockClient{db, conn}, err
}

func (c getLockClient) acquire(ctx context.Context, name string) (lock, error) {
	return getLock{c, name}, c.one(ctx, "SELECT GET_LOCK(?, 3600)", name)
}

func (c getLockClient) close() { _ = errors.Join(c.conn.Close(), c.db.Close()) }

// one executes a statement that returns 1 unless it has failed.
func (c getLockClient) one(ctx context.Context, statement, name string) error {
	var got sql.NullInt64
	err := c.conn.QueryRowContext(ctx, statement, name).Scan(&got)
	if err == nil && got.Int64 != 1 {
		return fmt.Errorf("%s: %v", statement, got)
	}
	return err
}

type getLock struct {
	client getLockClient
	name   string
}

func (l getLock) release() error {
	return l.client.one(context.Background(), "SELECT RELEASE_LOCK(?)", l.name)
}

func (getLock) err() error { return nil }
