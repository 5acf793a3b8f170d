package kubeapi

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// rights distinguishes an account that lacks a right from an API server that starts. Until such a
// server has read who may do what, it refuses all requests.
type rights struct {
	mu      sync.Mutex           // guards the fields below
	served  time.Time            // when the server served a request last
	refused map[string]time.Time // since when it refuses a verb, zero if it does not; verbs that it has never served are absent
}

// starting is how long an API server may refuse a verb that it has served before.
const starting = 10 * time.Second

// pause is shorter than any restart of an API server. One that has served a request within it and
// refuses a verb that it has never served is not starting.
const pause = time.Second

// judge returns the error of an answer that is one. A refusal is ErrUnavailable if it may pass.
func (r *rights) judge(verb string, err error) error {
	switch {
	case errors.Is(err, errNoServer):
		return r.refuse(anyVerb, err)
	case errors.Is(err, errRefused):
		return r.refuse(verb, err)
	case errors.Is(err, ErrAbsent) || errors.Is(err, driver.ErrConflict):
		r.admit(verb)
	}
	return err
}

// admit records that the server has served a request.
func (r *rights) admit(verb string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		r.refused = map[string]time.Time{}
	}
	r.served = time.Now()
	r.refused[verb], r.refused[anyVerb] = time.Time{}, time.Time{}
}

// has reports whether the server has served a verb.
func (r *rights) has(verb string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.refused[verb]
	return known
}

// anyVerb is the verb of answers that are not from an API server, but from a proxy without one.
const anyVerb = ""

// refuse returns the error of a request that was refused.
func (r *rights) refuse(verb string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, known := r.refused[verb]
	if r.served.IsZero() || !known && time.Since(r.served) < pause {
		return err
	}
	if since.IsZero() {
		since = time.Now()
		r.refused[verb] = since
	}
	if time.Since(since) < starting {
		return fmt.Errorf("%w: Kubernetes: %s", driver.ErrUnavailable, strings.TrimPrefix(err.Error(), driver.ErrConfig.Error()+": "))
	}
	return err
}
