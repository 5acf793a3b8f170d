package pgrecords

import "regexp"

// Break changes a part of a statement of the records, and reports whether it was there.
func (r *Records) Break(statement, pattern, instead string) bool {
	sql := map[string]*string{"get": &r.sql.Get, "list": &r.sql.List, "update": &r.sql.Update, "revive": &r.sql.Revive, "insert": &r.sql.Insert}[statement]
	before := *sql
	*sql = regexp.MustCompile(pattern).ReplaceAllString(before, instead)
	return *sql != before
}

// Sweep lets the next swap remove what expired a while ago.
func (r *Records) Sweep() { r.swept.Again() }
