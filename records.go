package fencelock

import "github.com/fencelock/fencelock/driver"

// ErrConflict means that a record has changed since its version was read.
var ErrConflict = driver.ErrConflict

// The records of an engine. Most programs use them through packages such as optimistic.
type (
	// Records stores small values. A write succeeds only if the record still has the version that
	// was read: compare-and-swap.
	Records = driver.Records
	// Record is one record of Records. Its fields are
	//
	//	Key     string
	//	Value   []byte
	//	Version string // to be given to Swap; empty if there is no record
	Record = driver.Record
)
