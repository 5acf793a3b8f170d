package main

import (
	"context"
	_ "embed" // for the schema
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence/fencepgx"
	"github.com/fencelock/fencelock/fence/fencepostgres"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/idempotent/idempotentpgx"
)

//go:embed booking.sql
var schema string

const (
	// The day of departure is free for the next guest.
	takenSQL = `SELECT EXISTS (SELECT FROM booking WHERE room = $1 AND from_day < $3 AND to_day > $2)`
	bookSQL  = `INSERT INTO booking (room, guest, from_day, to_day) VALUES ($1, $2, $3, $4) RETURNING id`
	listSQL  = `SELECT id, room, guest, from_day::text, to_day::text FROM booking ORDER BY id`
)

// A Booking is a stay in a room. Days are written 2006-01-02.
type Booking struct {
	ID    int64  `json:"id"`
	Room  string `json:"room"`
	Guest string `json:"guest"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// An answer is the response to a request. It is the same if the request is sent again.
type answer struct {
	Status  int
	Booking *Booking // nil if nothing was booked
	Problem string   // why nothing was booked
}

// desk books rooms.
type desk struct {
	pool  *pgxpool.Pool
	locks *fencelock.Locker
}

// prepare creates the tables, one process at a time: if two processes create a table at once,
// one of them fails in PostgreSQL, even with IF NOT EXISTS.
func (d *desk) prepare(ctx context.Context) error {
	return d.locks.Do(ctx, "booking/schema", func(ctx context.Context) error {
		for _, sql := range []string{schema, fencepostgres.Schema(), idempotentpgx.Schema()} {
			if _, err := d.pool.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// post books a room for a request with an Idempotency-Key.
func (d *desk) post(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	var b Booking
	if err == nil {
		err = json.Unmarshal(body, &b)
	}
	from, errFrom := time.Parse(time.DateOnly, b.From)
	to, errTo := time.Parse(time.DateOnly, b.To)
	named := b.Room != "" && b.Guest != "" && !strings.Contains(b.Guest, "\x00") // PostgreSQL keeps no NUL
	if err := errors.Join(err, errFrom, errTo); err != nil || key == "" || !named || !from.Before(to) {
		respond(w, answer{Status: http.StatusBadRequest, Problem: "send an Idempotency-Key, and a room, a guest, and days such as 2026-05-01"})
		return
	}
	a, err := d.book(r.Context(), key, body, b, from, to)
	switch {
	case err == nil:
		respond(w, a)
	case errors.Is(err, idempotent.ErrMismatch):
		respond(w, answer{Status: http.StatusUnprocessableEntity, Problem: "this Idempotency-Key was used for another request"})
	case errors.Is(err, fencelock.ErrInvalid):
		respond(w, answer{Status: http.StatusBadRequest, Problem: err.Error()})
	default: // busy, lost, stale or unavailable: the next attempt returns whether it was booked
		w.Header().Set("Retry-After", "1")
		respond(w, answer{Status: http.StatusServiceUnavailable, Problem: err.Error()})
	}
}

// book books a room at most once. The lock of the room keeps other requests for it out. The
// check of the fencing token refuses this process if it has lost the lock without noticing.
// DoTx stores the answer under the request's key in the same transaction: if the process is
// killed, both the booking and the answer are stored, or neither.
func (d *desk) book(ctx context.Context, key string, body []byte, b Booking, from, to time.Time) (a answer, err error) {
	room := "room/" + b.Room
	err = d.locks.Do(ctx, room, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) (err error) {
			if err := fencepgx.Check(ctx, tx, room); err != nil {
				return err
			}
			a, err = idempotentpgx.DoTx(ctx, tx, "booking/"+key, body, func(ctx context.Context, tx pgx.Tx) (answer, error) {
				var taken bool
				if err := tx.QueryRow(ctx, takenSQL, b.Room, from, to).Scan(&taken); err != nil {
					return answer{}, err
				}
				if taken {
					return answer{Status: http.StatusConflict, Problem: "the room is taken"}, nil
				}
				err := tx.QueryRow(ctx, bookSQL, b.Room, b.Guest, from, to).Scan(&b.ID)
				return answer{Status: http.StatusCreated, Booking: &b}, err
			})
			return err
		})
	})
	return a, err
}

// list returns all bookings.
func (d *desk) list(w http.ResponseWriter, r *http.Request) {
	rows, err := d.pool.Query(r.Context(), listSQL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Booking])
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // the client may have gone
}

func respond(w http.ResponseWriter, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.Status)
	if a.Booking != nil {
		_ = json.NewEncoder(w).Encode(a.Booking) // the client may have gone
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"problem": a.Problem}) // the same
}
