package main

import (
	"fmt"
	"slices"
	"strings"
)

// selection is a part of all there is to measure: names separated by commas,
// where none means all.
type selection struct{ suites, measures, contestants string }

// choose returns the selected suites, by default those that users read, with the selected measures and
// contestants alone.
func (sel selection) choose() ([]suite, error) {
	some, err := pick(suites, sel.suites, suiteNames(), func(s suite) string { return s.name })
	if err != nil {
		return nil, err
	}
	if sel.suites == "" {
		some = outside()
	}
	known := measureNames(some)
	if _, err := pick(known, sel.measures, known, func(name string) string { return name }); err != nil {
		return nil, err
	}
	var chosen []suite
	for _, s := range some {
		s.measures, _ = pick(s.measures, sel.measures, known, func(m measure) string { return m.name })
		if len(s.measures) > 0 {
			chosen = append(chosen, s.only(sel.contestants))
		}
	}
	return chosen, nil
}

// pick returns those of all whose names are in the list, in the order of the
// list. What is in the list must be known.
func pick[T any](all []T, list string, known []string, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	var picked []T
	for want := range strings.SplitSeq(list, ",") {
		if !slices.Contains(known, want) {
			return nil, fmt.Errorf("nothing here is called %q: choose from %s", want, strings.Join(known, ", "))
		}
		if i := slices.IndexFunc(all, func(one T) bool { return name(one) == want }); i >= 0 {
			picked = append(picked, all[i])
		}
	}
	return picked, nil
}

// only returns the suite with the limit, us and the named contestants alone.
func (s suite) only(with string) suite {
	if with == "" {
		return s
	}
	named := append(strings.Split(with, ","), bare, minimal, ours)
	s.contestants = slices.DeleteFunc(slices.Clone(s.contestants), func(c contestant) bool { return !slices.Contains(named, c.name) })
	return s
}

// outside are the suites that users read.
func outside() []suite {
	return slices.DeleteFunc(slices.Clone(suites), func(s suite) bool { return s.inside })
}

func suiteNames() []string {
	var out []string
	for _, s := range suites {
		out = append(out, s.name)
	}
	return out
}

// measureNames are the names of all measures of some suites, each once.
func measureNames(some []suite) []string {
	var out []string
	for _, s := range some {
		for _, m := range s.measures {
			if !slices.Contains(out, m.name) {
				out = append(out, m.name)
			}
		}
	}
	return out
}
