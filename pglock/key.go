package pglock

import (
	"strconv"
	"strings"
)

// The text around the integer in the name of a key.
const keyPrefix, keySuffix = "pg_advisory_lock(", ")"

// Key returns the name that stands for the advisory lock of an integer, for
// applications that lock on ids: with the name pglock.Key(42) an engine takes the
// very lock that pg_advisory_lock(42) takes.
//
// The name is written like that call, "pg_advisory_lock(42)", which a command line
// can use as well. Only this exact spelling, with a decimal int64 that has no
// leading zeros and no plus sign, stands for an integer. Every other name is
// locked by its hash, hashtextextended(name, 0), computed by the server.
func Key(id int64) string {
	return keyPrefix + strconv.FormatInt(id, 10) + keySuffix
}

// keySQL computes the 64-bit key of a name from the name and its keyID. The
// server hashes, because the hash is of the name in the database's own encoding
// and differs between byte orders. It is named in full: the transaction's search_path may have
// another function, which fits better.
const keySQL = "coalesce($2::bigint, pg_catalog.hashtextextended($1::text, 0::bigint))"

// keyID returns the integer that a name made by Key stands for, nil if it is any
// other name.
func keyID(name string) *int64 {
	digits, ok := strings.CutPrefix(name, keyPrefix)
	if !ok {
		return nil
	}
	digits, ok = strings.CutSuffix(digits, keySuffix)
	if !ok {
		return nil
	}
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || Key(id) != name {
		return nil
	}
	return &id
}
