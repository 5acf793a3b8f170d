package pglock

import (
	"errors"
	"fmt"
)

// The SQLSTATEs that a locking statement meets.
const (
	failedTransaction = "25P02"
	lockNotAvailable  = "55P03"
	queryCanceled     = "57014"
	deadlockDetected  = "40P01"
)

// sqlState returns the SQLSTATE of an error, "" if it has none. Every PostgreSQL
// driver of note has errors with this method.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// txError says what an error of the server means for a lock in a transaction.
func txError(name string, err error) error {
	switch sqlState(err) {
	case failedTransaction:
		return fmt.Errorf("%q was not locked: the transaction has failed before; roll it back and begin again: %w", name, err)
	case deadlockDetected:
		return fmt.Errorf("%q was not locked: %w; roll the transaction back and begin again: %w", name, ErrDeadlock, err)
	}
	return fmt.Errorf("%q was not locked: %w", name, explain(err))
}
