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
}

func (c *causes) add(n *node, err error) {
	if u, ok := errors.AsType[unfit](err); ok {
		c.wrong = u.error
	}
	if w, ok := errors.AsType[redislock.ServerError](err); ok && denied(w.Text) {
		c.forever++
	}
	c.errs = append(c.errs, fmt.Errorf("%s: %w", n.label, err))
}

// denied reports whether a server's words are about rights or passwords.
func denied(words string) bool {
	for _, code := range [...]string{"NOPERM", "NOAUTH", "WRONGPASS"} {
		if strings.Contains(words, code) {
			return true
		}
	}
	return strings.Contains(words, "ACL failure")
}

// err is the one-line error of all causes.
func (c *causes) err() error {
	if c.wrong != nil {
		return c.wrong
	}
	var texts []string
	for _, err := range c.errs {
		texts = append(texts, err.Error())
	}
	return &refusal{text: strings.Join(texts, "; "), errs: c.errs}
}

// refusal is why there is no majority.
type refusal struct {
	text string
	errs []error
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%v: no majority: %s", driver.ErrUnavailable, r.text)
}
func (r *refusal) Unwrap() []error { return append([]error{driver.ErrUnavailable}, r.errs...) }
