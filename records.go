package fencelock

import "github.com/fencelock/fencelock/driver"

// ErrConflict says that a record has changed since its version was read.
var ErrConflict = driver.ErrConflict

// What an engine's records are made of. Packages such as optimistic are the usual
// way to use them.
type (
	// Records keeps records, which change only from the version that was read.
	Records = driver.Records
	// Record is one record of Records. Its fields are
	//
	//	Key     string
	//	Value   []byte
	//	Version string // what Swap wants to hear; empty if there is no record
	Record = driver.Record
)
