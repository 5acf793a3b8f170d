//go:build unix

package kuberecords_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/recordlock"
)

// candidate takes a Lease object as the leader election of client-go does, with a lease of three
// seconds: it takes over what was unchanged for its duration, to the second, since it was seen.
type candidate struct {
	client   *http.Client
	url, id  string
	observed string
	at       time.Time
}

// leads is how long a candidate relies on its lease, which client-go calls the renew deadline.
const leads, lease = 2 * time.Second, 3

// request sends a request and decodes the answer. ok is false if it has failed.
func (c *candidate) request(ctx context.Context, method, path string, in, out any) (ok bool) {
	body, _ := json.Marshal(in)
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return false
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode/100 == 2 && json.NewDecoder(answer.Body).Decode(out) == nil
}

// write takes, renews or resigns the lease once. It reports whether that has succeeded.
func (c *candidate) write(ctx context.Context, holder string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	now := time.Now()
	var o map[string]any
	if !c.request(ctx, http.MethodGet, "/turns", map[string]any{}, &o) {
		return false
	}
	spec, _ := o["spec"].(map[string]any)
	renewed, _ := time.Parse(time.RFC3339, text(spec["renewTime"]))
	seen, _ := json.Marshal([]any{spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"], renewed.Unix()})
	if string(seen) != c.observed {
		c.observed, c.at = string(seen), time.Now()
	}
	seconds, _ := spec["leaseDurationSeconds"].(float64)
	other := text(spec["holderIdentity"]) != "" && text(spec["holderIdentity"]) != c.id
	if other && c.at.Add(time.Duration(seconds)*time.Second).After(now) || other && holder == "" {
		return false
	}
	stamp := now.UTC().Format("2006-01-02T15:04:05.000000Z")
	o["spec"] = map[string]any{"holderIdentity": holder, "leaseDurationSeconds": lease, "acquireTime": stamp, "renewTime": stamp, "leaseTransitions": 1}
	return c.request(ctx, http.MethodPut, "/turns", o, &o)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// hall is where turns are counted.
type hall struct {
	*testing.T
	mu     sync.Mutex // guards the fields below
	until  time.Time  // when the last holder stops to rely on the lease, unless it has ended before
	holder string
	token  int64
	turns  map[string]int
}

// enter begins a turn, of which the holder is sure until a time.
func (h *hall) enter(kind, id string, token int64, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.holder != "" && now.Before(h.until) {
		h.Errorf("%s holds the lock %v before %s has ended", id, h.until.Sub(now), h.holder)
	}
	if token != 0 && token <= h.token {
		h.Errorf("the token %d comes after %d", token, h.token)
	}
	h.token = max(h.token, token)
	h.holder, h.until = id, until
	h.turns[kind]++
}

// extend prolongs a turn, and leave ends it.
func (h *hall) extend(id string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder == id {
		h.until = until
	} else if time.Now().Before(until) {
		h.Errorf("%s has renewed a lease that %s has", id, h.holder)
	}
}

func (h *hall) leave(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder == id {
		h.holder = ""
	}
}

// elect takes turns as a candidate until ctx ends. Some turns end without a word.
func (h *hall) elect(ctx context.Context, c *candidate) {
	for ; ctx.Err() == nil; time.Sleep(200*time.Millisecond + rand.N(400*time.Millisecond)) {
		sent := time.Now()
		if !c.write(ctx, c.id) || time.Since(sent) > leads {
			continue
		}
		h.enter("client-go", c.id, 0, sent.Add(leads))
		for rand.IntN(4) == 0 {
			time.Sleep(500 * time.Millisecond)
			again := time.Now()
			if c.write(ctx, c.id) {
				sent = again
				h.extend(c.id, sent.Add(leads))
			}
		}
		time.Sleep(min(rand.N(5*time.Millisecond), time.Until(sent.Add(leads))))
		h.leave(c.id)
		if rand.IntN(10) == 0 {
			time.Sleep(lease * time.Second) // it is dead, and another one starts
			c.observed = ""
			continue
		}
		_ = c.write(ctx, "")
	}
}

// lock takes turns as a client of fencelock until ctx ends. Some turns end without a word.
func (h *hall) lock(ctx context.Context, e *recordlock.Engine) {
	const length = 2 * time.Second
	for ; ctx.Err() == nil; time.Sleep(rand.N(2 * time.Second)) {
		req := driver.Request{Name: "turns", TTL: length, Wait: true}
		g, err := e.Acquire(ctx, req)
		if err != nil {
			continue
		}
		h.enter("fencelock", g.Owner, g.Token, g.Sent.Add(length))
		l := driver.Lease{Name: "turns", Owner: g.Owner, Token: g.Token, TTL: length}
		sent := g.Sent
		for rand.IntN(4) == 0 {
			time.Sleep(500 * time.Millisecond)
			again := time.Now()
			limited, cancel := context.WithDeadline(ctx, sent.Add(length))
			if errs := e.Renew(limited, []driver.Lease{l}); errs[0] == nil {
				sent = again
				h.extend(g.Owner, sent.Add(length))
			}
			cancel()
		}
		time.Sleep(min(rand.N(5*time.Millisecond), time.Until(sent.Add(length))))
		h.leave(g.Owner)
		if rand.IntN(10) == 0 {
			continue
		}
		if err := e.Release(ctx, l); err != nil && !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil {
			h.Errorf("release: %v", err)
		}
	}
}

// TestTurns: clients of fencelock and candidates of client-go take turns on one object for
// ten minutes, while requests are lost, delivered late, or answered to nobody. No two of them rely on the
// lock at the same time.
func TestTurns(t *testing.T) {
	play(t, func(s scene) {
		s.elected("turns", "", 1)
		s.server.Intercept(func(_ http.ResponseWriter, r *http.Request, serve func()) bool {
			if r.URL.Query().Has("watch") || rand.IntN(20) > 0 {
				return false
			}
			switch rand.IntN(3) {
			case 0: // lost
			case 1: // executed, but the answer is lost
				serve()
			case 2: // executed late
				time.Sleep(rand.N(8 * time.Second))
				serve()
			}
			panic(http.ErrAbortHandler)
		})
		h := &hall{T: s.T, turns: map[string]int{}}
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Minute)
		defer cancel()
		var work sync.WaitGroup
		for _, id := range []string{"pod-1", "pod-2"} {
			c := &candidate{client: s.server.Client(), url: s.server.URL + "/apis/coordination.k8s.io/v1/namespaces/shop/leases", id: id}
			work.Go(func() { h.elect(ctx, c) })
			work.Go(func() { h.lock(ctx, s.locks()) })
		}
		work.Wait()
		s.server.Intercept(nil)
		time.Sleep(10 * time.Second) // until late requests were executed
		if t.Logf("turns: %v", h.turns); min(h.turns["client-go"], h.turns["fencelock"]) < 100 {
			t.Errorf("too few turns: %v", h.turns)
		}
	})
}
