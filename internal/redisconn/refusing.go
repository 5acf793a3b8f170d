package redisconn

import (
	"context"
	"time"
)

// Refusing returns a Conn whose methods return err without I/O.
func Refusing(err error) Conn { return refusing{err} }

type refusing struct{ err error }

func (r refusing) Eval(_ context.Context, calls []Call) []Reply { return Failures(len(calls), r.err) }

func (r refusing) Subscribe(context.Context, string, func(), func(string)) error { return r.err }

func (r refusing) Scan(context.Context, time.Duration, string, func([]string) error) error {
	return r.err
}

func (r refusing) Each(context.Context, ...string) ([]Answer, error) { return nil, r.err }

func (refusing) Cluster() bool { return false }
