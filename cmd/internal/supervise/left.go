//go:build unix

package supervise

import "fmt"

// onLeft handles a report that the command has ended and processes that it started have not.
func (p *Process) onLeft(n int) {
	if p.left = n; !p.wasAsked() {
		p.Say("the command has ended; waiting for processes that it started (%d)%s", n, p.Hint)
	}
	p.endLeft()
}

// endLeft ends the processes that the command has left behind, if this process was asked to end. A
// signal that it passes on reaches only the process group of the command, so the others would keep
// the lock for as long as they like.
func (p *Process) endLeft() {
	if p.left == 0 || !p.wasAsked() || p.end.Lost || p.end.Capped || p.end.Cancelled || p.end.Broken || p.kill != nil || p.killed {
		return
	}
	p.stop(p.KillAfter, fmt.Sprintf("the command has ended, and processes that it started have not (%d)", p.left))
}
