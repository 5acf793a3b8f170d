package redlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// nodeErrors collects the errors of the nodes that gave no vote.
type nodeErrors struct {
	errs    []error
	wrong   error // the set of nodes is invalid
	forever int   // nodes whose error is permanent
	need    int   // a majority
}

// add records the error of a node. A server of the wrong kind makes the set of nodes invalid,
// unless the node has been suitable before: then its address leads to another server at present,
// which may change.
func (c *nodeErrors) add(n *node, err error) {
	u, wrong := errors.AsType[badNodeError](err)
	switch {
	case wrong && !n.wasSuitable.Load():
		c.wrong = u.error
	case wrong || redisconn.Denied(err) || errors.Is(err, driver.ErrConfig):
		c.forever++
	}
	c.need = n.set.need
	c.errs = append(c.errs, fmt.Errorf("%s: %w", n.label, err))
}

// final reports whether the error of a majority is permanent.
func (c *nodeErrors) final() bool { return c.wrong != nil || c.need > 0 && c.forever >= c.need }

// joined returns one error for all nodes, on one line. It is ErrConfig if a majority of the nodes
// has a configuration error.
func (c *nodeErrors) joined() error {
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
	for _, err := range c.errs { // the configuration error of one node is not that of all
		if c.final() || !errors.Is(err, driver.ErrConfig) {
			r.errs = append(r.errs, err)
		}
	}
	return r
}

// refusal is the error when there is no majority.
type refusal struct {
	kind error
	text string
	errs []error
}

func (r *refusal) Error() string   { return fmt.Sprintf("%v: no majority: %s", r.kind, r.text) }
func (r *refusal) Unwrap() []error { return append([]error{r.kind}, r.errs...) }
