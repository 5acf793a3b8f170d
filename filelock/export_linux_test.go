package filelock

import (
	"slices"
	"time"
)

// TellsMoves reports whether a watcher of a directory below top has its subscriber look when
// move has put another one in its place, and reports that one too. The system tells of the
// move of the directory itself, and not of that of top.
func TellsMoves(top, dir string, itself bool, patience time.Duration, move, touch func()) (told, heard bool) {
	source, err := newNotifier()
	if err != nil {
		return true, true // the user has no more of them
	}
	defer source.close()
	_ = source.f.SetReadDeadline(time.Now().Add(patience))
	h := watcher{top: top, source: source, running: true} // nobody else looks
	h.moved()
	var bases []string
	h.subscribe(dir, func(base string) { bases = append(bases, base) })
	pass := func() {
		events, _ := source.read()
		for _, ev := range events {
			h.pass(ev)
		}
	}
	h.look(false)
	move()
	if itself {
		pass()
	}
	h.look(false)
	told = slices.Contains(bases, "")
	touch()
	pass()
	return told, slices.Contains(bases, "new")
}
