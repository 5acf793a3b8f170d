package sqlrecords

import "regexp"

// Break changes a part of a statement of the records, and reports whether it was there.
func (r *Records) Break(statement, pattern, instead string) bool {
	sql := map[string]*string{"get": &r.sql.Get, "list": &r.sql.List, "update": &r.sql.Update, "revive": &r.sql.Revive}[statement]
	before := *sql
	*sql = regexp.MustCompile(pattern).ReplaceAllString(before, instead)
	return *sql != before
}

// Sweep lets the next swap remove what expired a while ago.
func (r *Records) Sweep() { r.swept.Again() }

// SkipCheck makes the records believe that their connections have been checked.
func (r *Records) SkipCheck() { r.poolCheck.passed.Store(true) }

// Limit is the limit of each call.
const Limit = limit
