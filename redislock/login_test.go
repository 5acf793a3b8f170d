package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// TestLoginRefused: a server that has taken over may not know the user yet. Once a server has
// served that may pass, and is told so; a missing right is a matter of the setup.
func TestLoginRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.user("~*")
	client := rueidisClient(t, o)
	e := redislock.New(client, nil)
	t.Cleanup(func() { _ = e.Close() })
	take := func(e *redislock.Engine) error {
		req := try(brief("n"))
		g, err := e.Acquire(t.Context(), req)
		if err == nil {
			err = e.Release(t.Context(), driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, TTL: req.TTL})
		}
		return err
	}
	if err := take(e); err != nil {
		t.Fatal(err)
	}
	s.server.Do(t, "ACL", "SETUSER", "app", "resetpass", ">other")
	s.server.Do(t, "CLIENT", "KILL", "USER", "app")
	err := take(e)
	for end := time.Now().Add(time.Minute); err != nil && strings.Contains(err.Error(), "no answer") && time.Now().Before(end); {
		err = take(e) // on a busy machine, the refusal does not come in time
	}
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a login that is refused after a server has served: %v, want ErrUnavailable", err)
	}
	_, err = e.Records().Get(t.Context(), "a")
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
		t.Errorf("a record then: %v, want ErrUnavailable", err)
	}
	s.server.Do(t, "ACL", "SETUSER", "app", "resetpass", ">secret")
	if err := take(e); err != nil {
		t.Errorf("when the server knows the user: %v", err)
	}
	s.server.Do(t, "ACL", "SETUSER", "app", "-evalsha", "-eval")
	if err := take(e); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a missing right: %v, want ErrConfig", err)
	}
}
