package memlock

import (
	"cmp"
	"slices"
)

// queue is the waiters of a name, the next one first. If a client has let a grant expire, it is
// silent: its claims keep their places, but are skipped until it is active again.
type queue []*claim

// join inserts a claim at the place of its ticket. A claim that was granted but did not take its
// grant returns to its old place.
func (q *queue) join(c *claim) {
	i, _ := slices.BinarySearchFunc(*q, c, func(a, b *claim) int { return cmp.Compare(a.ticket, b.ticket) })
	*q = slices.Insert(*q, i, c)
}

// leave removes a claim and reports whether it was there.
func (q *queue) leave(c *claim) bool {
	before := len(*q)
	*q = remove(*q, c)
	return len(*q) < before
}

// head returns the next waiter that is not silent, nil if there is none.
func (q queue) head() *claim {
	for _, w := range q {
		if !w.client.silent {
			return w
		}
	}
	return nil
}

// position returns the place of a waiter, 1 for the next one. It returns 0 for a waiter of a silent
// client and for a claim that does not wait.
func (q queue) position(c *claim) int {
	place := 0
	for _, w := range q {
		if !w.client.silent {
			place++
			if w == c {
				return place
			}
		}
	}
	return 0
}

func remove(claims []*claim, c *claim) []*claim {
	return slices.DeleteFunc(claims, func(o *claim) bool { return o == c })
}
