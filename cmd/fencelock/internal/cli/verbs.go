//go:build unix

package cli

// allVerbs returns every verb, in the order people read them. Each stands in a file of its
// own, as a type with its flags and arguments as fields; to add one is to add a line here.
func allVerbs() (all []*verb) {
	for _, c := range []interface{ verb() *verb }{
		new(runCmd), new(electCmd), new(onceCmd), new(limitCmd),
		new(lsCmd), new(statusCmd), new(watchCmd), new(breakCmd), new(jobsCmd), new(resignCmd), new(resizeCmd), new(initCmd), new(doctorCmd),
		new(completionCmd), new(manCmd), new(versionCmd),
	} {
		all = append(all, c.verb())
	}
	return all
}
