package memlock

import (
	"cmp"
	"slices"
)

// queue is those who wait for a name, next first. A client that let a grant lapse is
// silent: its claims keep their places, but are passed over until it is heard of.
type queue []*claim

// join puts a claim at the place its ticket gives it: one that was granted and did
// not take it goes back to where it stood.
func (q *queue) join(c *claim) {
	i, _ := slices.BinarySearchFunc(*q, c, func(a, b *claim) int { return cmp.Compare(a.ticket, b.ticket) })
	*q = slices.Insert(*q, i, c)
}

// leave takes a claim out and reports whether it was there.
func (q *queue) leave(c *claim) bool {
	before := len(*q)
	*q = remove(*q, c)
	return len(*q) < before
}

// head is the next waiter who is not silent, nil if there is none.
func (q queue) head() *claim {
	for _, w := range q {
		if !w.client.silent {
			return w
		}
	}
	return nil
}

// position is the place of a waiter, 1 for the next one; 0 for one of a silent
// client, whose place is unknown, and for one who does not wait.
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
