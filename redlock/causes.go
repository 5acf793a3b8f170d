package redlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// causes tells what each node said that gave no vote.
type causes struct {
	errs    []error
	wrong   error // the set of nodes is no good
	forever int   // nodes that will say the same again
	need    int   // a majority
}

func (c *causes) add(n *node, err error) {
	u, wrong := errors.AsType[badNodeError](err)
	switch {
	case wrong && !n.knew.Load():
		c.wrong = u.error
	case wrong || denied(err):
		c.forever++
	}
	c.need = n.engine.need
	c.errs = append(c.errs, fmt.Errorf("%s: %w", n.label, err))
}

// denied reports whether a server refuses us as such, so that nobody need ask again.
func denied(err error) bool {
	w, ok := errors.AsType[redislock.ServerError](err)
	return ok && w.Denied()
}

// final reports whether a majority will say the same again.
func (c *causes) final() bool { return c.wrong != nil || c.need > 0 && c.forever >= c.need }

// err is the one-line error of all causes. The set-up is to blame if a majority of
// the nodes says so.
func (c *causes) err() error {
	if c.wrong != nil {
		return c.wrong
	}
	var texts []string
	for _, err := range c.errs {
		texts = append(texts, driver.OneLine(err).Error())
	}
	r := &refusal{kind: driver.ErrUnavailable, text: strings.Join(texts, "; ")}
	if c.final() {
		r.kind = driver.ErrConfig
	}
	for _, err := range c.errs { // one node's set-up is not that of all
		if c.final() || !errors.Is(err, driver.ErrConfig) {
			r.errs = append(r.errs, err)
		}
	}
	return r
}

// refusal is why there is no majority.
type refusal struct {
	kind error
	text string
	errs []error
}

func (r *refusal) Error() string   { return fmt.Sprintf("%v: no majority: %s", r.kind, r.text) }
func (r *refusal) Unwrap() []error { return append([]error{r.kind}, r.errs...) }
