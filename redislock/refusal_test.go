package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

// says fails the test unless err is of a kind, on one line and with the server's own
// words.
func (s scene) says(err, kind error, words string) {
	s.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		s.Fatalf("got %v, want %v with %q on one line", err, kind, words)
	}
}

// user makes a user "app" with all rights to the keys, and returns the settings of its
// clients.
func (s scene) user(keys ...string) rueidis.ClientOption {
	s.Helper()
	s.server.Do(s, append([]string{"ACL", "SETUSER", "app", "on", ">secret", "&*", "+@all"}, keys...)...)
	o := rueidisOption(s.server.Addr())
	o.Username, o.Password = "app", "secret"
	return o
}

// TestMissingRight: one command after the other is forbidden. Whatever is refused is
// refused at once, in the server's words, and nothing stays locked.
func TestMissingRight(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	admin := s.engine(nil)
	o := s.user("~*")
	for _, command := range []string{
		"evalsha", "eval", "time", "mget", "get", "set", "exists", "del", "pexpire", "pttl", "zadd", "zrem", "zrank", "zscore",
		"zrange", "zrevrange", "zrangebyscore", "zrevrangebyscore", "publish", "subscribe", "pexpireat", "info",
	} {
		s.server.Do(t, "FLUSHALL")
		s.server.Do(t, "SCRIPT", "FLUSH")
		s.server.Do(t, "ACL", "SETUSER", "app", "+@all", "-"+command)
		client := rueidisClient(t, o)
		e := redislock.New(client, &redislock.Config{RetryTimeout: 10 * time.Second})
		short := brief("n")
		short.TTL = 200 * time.Millisecond
		for _, req := range []driver.Request{try(short), shared(try(short), 2), short, shared(short, 2)} {
			s.lacking(admin, e, command, req)
		}
		if command == "set" { // which every acquire of a free lock uses
			_, err := s.ask(e, try(short)).ended()
			verdict.Is(t, "Redis: an ACL right is missing", verdict.Refused, verdict.OfError(err))
		}
		_ = e.Close()
		client.Close()
	}
}

// lacking takes, renews and frees a lock, alone and after a wait, without a right.
func (s scene) lacking(admin, e *redislock.Engine, command string, req driver.Request) {
	s.Helper()
	denied := func(err error) bool {
		s.Helper()
		if err == nil {
			return false
		}
		if errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld) {
			return false
		}
		if !errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrUnavailable) ||
			!strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't run this command") && !strings.Contains(err.Error(), "ACL failure") {
			s.Errorf("without %s: %v", command, err)
		}
		return true
	}
	begun := time.Now()
	h, err := s.ask(e, req).ended()
	if !denied(err) {
		denied(h.renew())
		denied(h.release())
	}
	blocker := s.hold(admin, request("n"))
	w := s.ask(e, req)
	time.Sleep(30 * time.Millisecond) // some wait by now, some were refused
	if err := blocker.freed(); err != nil {
		s.Errorf("without %s for another: %v", command, err)
	}
	if h, err := w.ended(); !denied(err) && err == nil {
		denied(h.renew())
		denied(h.release())
	}
	g := s.hold(admin, request("n"))
	g.free()
	if took := time.Since(begun); took > 30*time.Second {
		s.Errorf("without %s it took %v", command, took)
	}
}

// TestRightLostWhileWaiting: a wait ends when the server refuses its questions for
// RetryTimeout, and goes on when it answers again before.
func TestRightLostWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.user("~*")
	h := s.hold(s.engine(nil), request("n"))
	var ws []*call
	for _, giveUp := range []time.Duration{time.Hour, time.Second} {
		e := redislock.New(rueidisClient(t, o), &redislock.Config{RetryTimeout: giveUp})
		t.Cleanup(func() { _ = e.Close() })
		s.warm(e)
		s.ready(e)
		ws = append(ws, s.requeue(e, brief("n")))
	}
	s.server.Do(t, "ACL", "SETUSER", "app", "-@scripting")
	_, err := ws[1].ended()
	s.says(err, driver.ErrConfig, "NOPERM")
	s.server.Do(t, "ACL", "SETUSER", "app", "+@scripting")
	h.free()
	ws[0].granted().free()
}

// TestWithoutChannels: a user who may not listen takes what is free, and learns at once
// that it cannot wait.
func TestWithoutChannels(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.user("~*")
	s.server.Do(t, "ACL", "SETUSER", "app", "resetchannels")
	e := redislock.New(rueidisClient(t, o), &redislock.Config{RetryTimeout: time.Hour})
	t.Cleanup(func() { _ = e.Close() })
	s.hold(e, request("free")).free()
	s.hold(s.engine(nil), request("n"))
	s.refused(e, request("n"))
	_, err := s.ask(e, request("n")).ended()
	s.says(err, driver.ErrConfig, "channel")
}

// TestWrappedErrors: servers before 7.0 wrap what a script was refused. A failover
// is ridden out all the same, and what is forbidden is told at once.
func TestWrappedErrors(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	wrapped := func(words string) *redisconn.Script {
		return redisconn.NewScript(`return redis.error_reply("ERR Error running script (call to f_0): @user_script:9: @user_script: 9: ` + words + `")`)
	}
	for _, c := range []struct {
		words string
		kind  error
	}{
		{"-READONLY You can't write against a read only replica.", nil},
		{"-NOREPLICAS Not enough good replicas to write.", nil},
		{"LOADING Redis is loading the dataset in memory", nil},
		{"The user executing the script can't run this command or subcommand", driver.ErrConfig},
		{"-OOM command not allowed when used memory > 'maxmemory'.", driver.ErrUnavailable},
	} {
		e, tap := s.tapped(nil)
		asked := 0
		tap.calls(func(call redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			if call.Script != redislock.AcquireScript {
				return do()
			}
			if asked++; asked <= 2 {
				call.Script = wrapped(c.words)
				return tap.Conn.Eval(t.Context(), []redisconn.Call{call})[0]
			}
			return do()
		})
		h, err := s.ask(e, try(request("n"))).ended()
		if c.kind != nil {
			s.says(err, c.kind, strings.TrimLeft(c.words, "-"))
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.words, err)
			continue
		}
		tap.calls(nil)
		h.free()
	}
}

// TestReadOnlyReplica: a server that takes no writes is asked again for as long as
// it may be failing over, and then named.
func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	replica := redistest.StartRedisReplica(t, s.server)
	for _, req := range []driver.Request{try(brief("n")), brief("n")} {
		s.hears(driver.ErrUnavailable, "READONLY", func(giveUp time.Duration) error {
			e := redislock.New(rueidisClient(t, rueidisOption(replica.Addr())), &redislock.Config{RetryTimeout: giveUp})
			t.Cleanup(func() { _ = e.Close() })
			begun := time.Now()
			_, err := e.Acquire(context.Background(), req)
			if took := time.Since(begun); took < giveUp/2 || took > giveUp+15*time.Second {
				t.Errorf("it took %v, with a patience of %v: %v", took, giveUp, err)
			}
			verdict.Is(t, "Redis: the server is a replica", verdict.Refused, verdict.OfError(err))
			return err
		})
	}
}

// TestFullMemory: with no memory left nothing new is locked. What is held can be
// renewed and released, and is handed on to those that wait.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	modes := []driver.Request{request("x"), shared(request("s"), 0), shared(request("l"), 2)}
	var hs []hold
	var ws []*call
	for _, req := range modes {
		hs = append(hs, s.hold(a, req))
		ws = append(ws, s.queue(b, request(req.Name)))
	}
	req := request("orphan")
	req.TTL = 4 * time.Second
	orphan := s.hold(a, req)
	orphaned := keep(orphan)
	heir := s.queue(b, req)
	s.server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	orphaned()
	for _, req := range []driver.Request{brief("new"), try(brief("new")), shared(brief("new"), 0), brief("x")} {
		_, err := s.ask(a, req).ended()
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%+v: %v", req, err)
		}
		verdict.Is(t, "Redis: memory is full, policy noeviction", verdict.Refused, verdict.OfError(err))
	}
	for i, h := range hs {
		if err := h.renew(); err != nil {
			t.Errorf("renewing %s: %v", h.req.Name, err)
		}
		h.free()
		g := ws[i].kept()
		if g.Token <= h.Token {
			t.Errorf("%s: token %d after %d", h.req.Name, g.Token, h.Token)
		}
		g.free()
	}
	g := heir.granted()
	if g.Token <= orphan.Token {
		t.Errorf("token %d after %d", g.Token, orphan.Token)
	}
	g.free()
	s.server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	for _, name := range []string{"new", "x", "s", "l", "orphan"} {
		s.clean(name)
	}
}

// TestEviction: a server that evicts keys is refused, unless the caller accepts it
// or memory has no bound.
func TestEviction(t *testing.T) {
	t.Parallel()
	s := newScene(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
	_, err := s.ask(s.engine(nil), request("n")).ended()
	s.says(err, driver.ErrConfig, "maxmemory-policy volatile-ttl")
	verdict.Is(t, "Redis: the server may evict keys", verdict.Refused, verdict.OfError(err))
	s.hold(s.engine(&redislock.Config{AllowEviction: true}), request("n")).free()
	s.server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	s.hold(s.engine(nil), request("n")).free()
	s.server.Do(t, "CONFIG", "SET", "maxmemory", "100mb")
	s.server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	s.hold(s.engine(nil), request("n")).free()
}

// TestEveryKeyExpires: after a little of everything, no key is without a TTL.
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	cfg := &redislock.Config{Quarantine: true, MaxTTL: long}
	a, b := s.engine(cfg), s.engine(cfg)
	if err := a.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i, req := range []driver.Request{request("x"), shared(request("s"), 0), shared(request("l"), 2), minHold(request("m"), time.Second)} {
		h := s.hold(a, req)
		ws := s.lineUp(3, request(req.Name), a, b)
		s.expiring()
		h.free()
		ws[0].kept()
		ws[1].cancel()
		s.expiring()
		if i%2 == 0 {
			if _, err := a.Break(context.Background(), req.Name, "test"); err != nil {
				t.Error(err)
			}
			ws[2].granted()
		}
		s.expiring()
	}
	if _, err := a.Inspect(context.Background(), time.Minute); err != nil {
		t.Error(err)
	}
	s.expiring()
}

// expiring fails the test if a key has no TTL.
func (s scene) expiring() {
	s.Helper()
	for _, key := range s.keys() {
		if s.server.Do(s, "PTTL", key) == "-1" {
			s.Errorf("%s never expires: %s", key, fmt.Sprint(s.server.Do(s, "TYPE", key)))
		}
	}
}
