package fencepostgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencepostgres"
	"github.com/fencelock/fencelock/memlock"
)

// A holder that was stopped for longer than its lease writes late, and bounces.
func ExampleCheck() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)
	ctx := context.Background()

	pay := func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fencepostgres.Check(ctx, tx, "invoice:42"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE invoice SET value = 'paid' WHERE id = '42'"); err != nil {
			return err
		}
		return tx.Commit()
	}

	paused, err := locks.Acquire(ctx, "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("invoice:42")                           // its lease ends

	fmt.Println("next:", locks.Do(ctx, "invoice:42", pay))
	fmt.Println("late:", errors.Is(pay(inFlight), fence.ErrStale))
}

// Shared holders do not shut one another out, an exclusive one shuts out both.
func ExampleCheck_shared() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)
	shared := locks.With(fencelock.Options{Shared: true})
	ctx := context.Background()

	write := func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fencepostgres.Check(ctx, tx, "stock"); err != nil {
			return err
		}
		return tx.Commit()
	}

	first, _ := shared.Acquire(ctx, "stock")
	second, _ := shared.Acquire(ctx, "stock")
	fmt.Println("first:", write(first.Context()))
	fmt.Println("second:", write(second.Context()))
	fmt.Println("first again:", write(first.Context()))

	engine.Lose("stock")
	fmt.Println("exclusive:", locks.Do(ctx, "stock", write))
	fmt.Println("late:", errors.Is(write(context.WithoutCancel(first.Context())), fence.ErrStale))
}
