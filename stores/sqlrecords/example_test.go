//go:build unix

package sqlrecords_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
	"github.com/fencelock/fencelock/optimistic"
	"github.com/fencelock/fencelock/stores/sqlrecords"
)

// A number that many processes count up, in a table of MariaDB.
func Example() {
	db, err := sql.Open("mysql", os.Getenv("DATABASE_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	records := sqlrecords.New(db, sqlrecords.MySQL, nil)
	ctx := context.Background()
	if err := records.Init(ctx); err != nil { // makes the table
		log.Fatal(err)
	}

	visits := optimistic.New(records, nil)
	count := func(_ context.Context, old []byte) ([]byte, error) {
		n, _ := strconv.Atoi(string(old)) // 0 for the first
		return strconv.AppendInt(nil, int64(n)+1, 10), nil
	}
	for range 2 {
		n, err := visits.Update(ctx, "visits", count)
		fmt.Println("visit", string(n.Value), err)
	}

	_, err = records.Swap(ctx, "optimistic/visits", []byte("0"), "", 0) // as if there were none
	fmt.Println("lost update:", errors.Is(err, driver.ErrConflict))
}

// TestExample runs the example, which needs a server.
func TestExample(t *testing.T) {
	t.Setenv("DATABASE_DSN", mariadbtest.Start(t).DSN("test"))
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdout
	os.Stdout = out // has room for all that it prints
	Example()
	os.Stdout = before
	_ = out.Close()
	got, err := io.ReadAll(in)
	want := "visit 1 <nil>\nvisit 2 <nil>\nlost update: true\n"
	if err != nil || string(got) != want {
		t.Errorf("the example prints %q, %v, want %q", got, err, want)
	}
}
