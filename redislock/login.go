package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
)

// failoverTime is how long a failover may take. Until then a refused login counts as transient.
const failoverTime = 5 * time.Minute

// loginConn is a connection that remembers whether a login has ever succeeded. Before that, a
// refused login is a configuration error. Afterwards the server may be a new master that does not
// have our password yet, so the failure is transient until it lasts longer than failoverTime.
type loginConn struct {
	redisconn.Conn

	mu       sync.Mutex // guards all below
	served   bool       // a login has succeeded
	refusing time.Time  // since when logins are refused; zero if the last one was not
}

// Eval runs scripts; see [redisconn.Conn].
func (c *loginConn) Eval(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	replies := c.Conn.Eval(ctx, calls)
	for i := range replies {
		replies[i].Err = c.judge(replies[i].Err)
	}
	return replies
}

// Subscribe subscribes to a channel; see [redisconn.Conn].
func (c *loginConn) Subscribe(ctx context.Context, channel string, ready func(), message func(text string)) error {
	return c.judge(c.Conn.Subscribe(ctx, channel, ready, message))
}

// Each sends a command to every master; see [redisconn.Conn].
func (c *loginConn) Each(ctx context.Context, args ...string) ([]redisconn.Answer, error) {
	answers, err := c.Conn.Each(ctx, args...)
	for i := range answers {
		answers[i].Err = c.judge(answers[i].Err)
	}
	if err != nil { // otherwise only the answers show whether a login has succeeded
		err = c.judge(err)
	}
	return answers, err
}

// Unreached adds the servers that did not answer to an error, if the client knows them.
func (c *loginConn) Unreached(err error) error {
	if named, ok := c.Conn.(interface{ Unreached(error) error }); ok {
		return named.Unreached(err)
	}
	return err
}

// judge returns err, or a transient error if the login is refused during a failover.
func (c *loginConn) judge(err error) error {
	e, answered := errors.AsType[redisconn.ServerError](err)
	refused := answered && (e.Code() == "NOAUTH" || e.Code() == "WRONGPASS")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil, answered && !refused:
		c.served, c.refusing = true, time.Time{}
		return err
	case !refused || !c.served:
		return err
	case c.refusing.IsZero():
		c.refusing = time.Now()
	}
	if time.Since(c.refusing) > failoverTime {
		return err
	}
	return fmt.Errorf("the server refuses the login, perhaps because it has just taken over in a failover: %s", e.Text)
}
