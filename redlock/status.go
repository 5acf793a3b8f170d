package redlock

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// parseStatus reads what the status script returns, and the node's time. An empty list
// comes as {}.
func parseStatus(name, text string) (driver.Status, int64, error) {
	var raw struct {
		Now       string          `json:"now"`
		Mode      string          `json:"mode"`
		NotBefore string          `json:"notbefore"`
		Holders   json.RawMessage `json:"holders"` // text, end in milliseconds, foreign text
		Waiters   json.RawMessage `json:"waiters"` // text
	}
	s := driver.Status{Name: name}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return s, 0, fmt.Errorf("%w: unexpected answer %.100q", driver.ErrUnavailable, text)
	}
	if raw.Mode == "s" {
		s.Mode = driver.Shared
	}
	now := number(raw.Now)
	if nb := number(raw.NotBefore); nb > now {
		s.NotBefore = time.Now().Add(time.Duration(nb-now) * time.Microsecond)
	}
	var rows [][]string
	_ = json.Unmarshal(raw.Holders, &rows) // {} leaves it empty
	for _, row := range rows {
		if h, ok := holder(row, now); ok {
			s.Holders = append(s.Holders, h)
		}
	}
	var waiters []string
	_ = json.Unmarshal(raw.Waiters, &waiters)
	for _, text := range waiters {
		if h, ok := parseHolder(text); ok {
			s.Waiters = append(s.Waiters, driver.Waiter{Identity: h.Identity, Owner: h.Owner, Since: h.Since})
		}
	}
	return s, now, nil
}

func holder(row []string, now int64) (h driver.Holder, ok bool) {
	if len(row) < 2 {
		return h, false
	}
	if row[0] == "" && len(row) > 2 {
		h, ok = driver.Holder{Owner: row[2], Foreign: true}, true
	} else {
		h, ok = parseHolder(row[0])
	}
	if end := number(row[1]); end >= 0 {
		h.TTL = time.Duration(end-now/1000) * time.Millisecond
		ok = ok && h.TTL > 0
	}
	return h, ok
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
