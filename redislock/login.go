package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
)

// failoverTime is how long a failover may take: until then a login that is refused may pass.
const failoverTime = 5 * time.Minute

// loginConn is a connection that knows whether a server has ever let us in. Before one has, a
// login that is refused is what a person must mend. Afterwards the server may be one that has
// just taken over and was not told our password yet: that is a failure that passes, until it
// takes longer than a failover may.
type loginConn struct {
	redisconn.Conn

	mu       sync.Mutex // guards all below
	served   bool       // a server has let us in
	refusing time.Time  // logins are refused since then; zero if the last one was not
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
	return answers, c.judge(err)
}

// Unreached names the servers that did not answer, if the client knows them.
func (c *loginConn) Unreached(err error) error {
	if named, ok := c.Conn.(interface{ Unreached(error) error }); ok {
		return named.Unreached(err)
	}
	return err
}

// judge returns err, or one that passes if the login is refused during a failover.
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
	return fmt.Errorf("the server that has taken over refuses the login: %s", e.Text)
}
