package pglock

import "context"

// opening is a session that is open or being opened. A caller may stop waiting for it; the session
// is opened nevertheless, and later callers use it.
type opening struct {
	ready chan struct{} // closed when s and err are valid
	s     *session
	err   error
}

// open starts to open a session.
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

// opened returns an opening whose session is open already.
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

// over reports whether the attempt to open the session has finished.
func (o *opening) over() bool { return closed(o.ready) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// usable reports whether requests may use the session: it is healthy, or still being opened.
func (o *opening) usable() bool { return o != nil && (!o.over() || o.err == nil && o.s.usable()) }
