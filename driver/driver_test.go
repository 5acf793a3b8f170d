package driver_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
)

func TestQueryMatches(t *testing.T) {
	for _, c := range []struct {
		query driver.Query
		name  string
		want  bool
	}{
		{driver.Query{}, "anything", true},
		{driver.Query{Exact: true}, "anything", false},
		{driver.Query{Prefix: "job/"}, "job/1", true},
		{driver.Query{Prefix: "job/"}, "job/", true},
		{driver.Query{Prefix: "job/"}, "job", false},
		{driver.Query{Prefix: "job/"}, "Job/1", false},
		{driver.Query{Prefix: "job", Exact: true}, "job", true},
		{driver.Query{Prefix: "job", Exact: true}, "jobs", false},
		{driver.Query{Prefix: "job*"}, "jobs", false},
	} {
		if got := c.query.Matches(c.name); got != c.want {
			t.Errorf("%+v matches %q: %v, want %v", c.query, c.name, got, c.want)
		}
	}
}

func TestModeString(t *testing.T) {
	if got := driver.Exclusive.String(); got != "exclusive" {
		t.Errorf("Exclusive is %q", got)
	}
	if got := driver.Shared.String(); got != "shared" {
		t.Errorf("Shared is %q", got)
	}
}
