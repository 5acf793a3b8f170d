package house_test

import (
	"regexp"
	"strings"
	"testing"
)

// An edit can move a comment onto the line of a struct's head, where it is about no field, or leave
// the end of an older comment behind the new one.
var (
	commentOfHead = regexp.MustCompile(`(?m)^type \w+ (?:struct|interface) \{ //.*$`)
	packageText   = regexp.MustCompile(`(?m)\A(?://.*\n)+package `)
)

// strayComments returns the comments of a file that an edit has left in the wrong place.
func strayComments(text string) (faults []string) {
	faults = commentOfHead.FindAllString(text, -1)
	seen := map[string]bool{}
	for line := range strings.Lines(packageText.FindString(text)) {
		if line = strings.TrimSpace(line); len(line) > 12 && seen[line] && !strings.HasPrefix(line, "//\t") { // code may
			faults = append(faults, "twice: "+line)
		}
		seen[line] = true
	}
	return faults
}

// TestStrayComments: no comment stands on the line of a struct's head, and no package comment says
// a line twice.
func TestStrayComments(t *testing.T) {
	for _, name := range filesBelow(t, ".go") {
		for _, fault := range strayComments(readText(t, name)) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	bad := "// Package a is short.\n// It makes no difference.\n// It makes no difference.\npackage a\n\ntype b struct { // until when\n}\n"
	if got := strayComments(bad); len(got) != 2 {
		t.Errorf("this test finds %q, want 2 faults", got)
	}
}
