package pglock

import "context"

// opening is a session that is open, or is being opened. Opening it takes the time it takes: a
// caller with less waits no longer than it likes, and others find it open.
type opening struct {
	ready chan struct{} // closed when s and err are valid
	s     *session
	err   error
}

// open begins to open a session.
func open(dial func(context.Context) (*session, error)) *opening {
	o := &opening{ready: make(chan struct{})}
	go func() { // ends within dialLimit
		defer close(o.ready)
		ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
		defer cancel()
		o.s, o.err = dial(ctx)
	}()
	return o
}

// opened is for a session that is open.
func opened(s *session) *opening {
	o := &opening{ready: make(chan struct{}), s: s}
	close(o.ready)
	return o
}

// session waits for the session.
func (o *opening) session(ctx context.Context) (*session, error) {
	if !o.over() {
		select {
		case <-o.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return o.s, o.err
}

// over reports whether the session is open, or could not be opened.
func (o *opening) over() bool { return closed(o.ready) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// usable reports whether requests may use the session: it is fit, or is being opened.
func (o *opening) usable() bool { return o != nil && (!o.over() || o.err == nil && o.s.fit()) }
