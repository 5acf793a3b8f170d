package redlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// causes tells what each node said that gave no vote.
type causes struct {
	errs    []error
	wrong   error // the set of nodes is no good
	forever int   // nodes that will say the same again
	need    int   // a majority
}

// add notes why a node gave no vote. A server of the wrong kind makes the set of nodes no
// good, unless the node was fit before: then its address leads to another server for
// now, and that may pass.
func (c *causes) add(n *node, err error) {
	u, wrong := errors.AsType[badNodeError](err)
	switch {
	case wrong && !n.knew.Load():
		c.wrong = u.error
	case wrong || redisconn.Denied(err) || errors.Is(err, driver.ErrConfig):
		c.forever++
	}
	c.need = n.set.need
	c.errs = append(c.errs, fmt.Errorf("%s: %w", n.label, err))
}

// final reports whether a majority will say the same again.
func (c *causes) final() bool { return c.wrong != nil || c.need > 0 && c.forever >= c.need }

// joined is the one-line error of all causes. The set-up is to blame if a majority of
// the nodes says so.
func (c *causes) joined() error {
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
