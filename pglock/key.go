package pglock

import (
	"strconv"
	"strings"
)

// The text around the integer in a name made by Key.
const keyPrefix, keySuffix = "pg_advisory_lock(", ")"

// Key returns the name of the advisory lock of an integer, for applications that lock ids: an
// engine that acquires pglock.Key(42) takes the same lock as pg_advisory_lock(42).
//
// The name is the text "pg_advisory_lock(42)", which can also be used on the command line. Only
// this exact spelling, with a decimal int64 without leading zeros or a plus sign, is an integer's
// name. All other names are locked by their hash, hashtextextended(name, 0).
func Key(id int64) string {
	return keyPrefix + strconv.FormatInt(id, 10) + keySuffix
}

// keySQL computes the 64-bit key of a name from the name and its keyID. The server computes the
// hash, because it depends on the database's encoding and on the byte order. The function is
// schema-qualified because the transaction's search_path might contain another one that matches
// better.
// another function, which fits better.
const keySQL = "coalesce($2::bigint, pg_catalog.hashtextextended($1::text, 0::bigint))"

// keyID returns the integer of a name made by Key, nil for any other name.
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
