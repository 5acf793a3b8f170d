//go:build unix

package supervise

// onLast takes over from a watchdog that has not ended the command. One that has reported processes
// of other users works, and keeps trying.
func (p *Process) onLast() {
	if p.last = nil; p.readReports() && p.denied == 0 {
		p.replace()
	}
}

// onTimeout takes over from a watchdog that does not carry out its orders in time, unless a report
// that it does has arrived by now.
func (p *Process) onTimeout() {
	late := p.watchdog.timeout
	if p.readReports() && p.watchdog.timeout == late && p.watchdog.timedOut() {
		p.replace()
	}
}

// readReports handles the reports that have arrived. It reports whether the watchdog still has work.
func (p *Process) readReports() bool {
	for !p.empty && p.reports != nil {
		select {
		case r, ok := <-p.reports:
			p.onReport(r, ok)
		default:
			return true
		}
	}
	return false
}

// order has the watchdog carry out an order. If the watchdog is gone, this process carries it out.
func (p *Process) order(o order) {
	switch {
	case p.reports != nil:
		p.watchdog.order(o)
	case o.Kill:
		p.end.Broken = true
	default:
		p.own.signal(o.Signal, o.All)
	}
}
