package kuberecords

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/internal/kubeapi"
)

// The record of a lock and the spec of its Lease object are two views of one holder. This file
// translates between them, so that recordlock and the leader election of client-go exclude each
// other without knowing each other:
//
//   - Get shows a holder in the spec that recordlock has not written as a holder of the lock, whose
//     lease is over when the spec has not changed for its duration. This is client-go's rule, and
//     also that of recordlock for a lease without the store's clock. The annotation lacks it.
//   - Swap writes the spec if the holders or their leases have changed. Waiters do not change it, or
//     the lease of a dead holder would never end for client-go.

// stamp formats a time for a spec. The API server refuses another number of digits.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// lock is what this package reads of the record of a lock. The fields have the whole record.
type lock struct {
	fields  map[string]json.RawMessage
	Holders []holder `json:"holders"`
	Closed  *holder  `json:"closed"` // the minimum hold
}

// holder is a holder or a minimum hold in the record of a lock; see docs/internals/recordlock.md.
type holder struct {
	Owner string `json:"owner"`
	Host  string `json:"host"`
	Since int64  `json:"since"`
	Token int64  `json:"token"` // 0 for a holder of another program
	TTL   int64  `json:"ttl"`
	Beat  int64  `json:"beat"`
	Wall  int64  `json:"wall"`
}

// closedBy is the holder in the spec during the minimum hold of a lock without holders.
const closedBy = "fencelock: minimum hold"

// parseLock reads a record. It is not valid if it is of another format, which recordlock refuses.
func parseLock(value []byte) (l *lock, valid bool) {
	l = &lock{fields: map[string]json.RawMessage{}}
	return l, len(value) == 0 || json.Unmarshal(value, &l.fields) == nil && json.Unmarshal(value, l) == nil
}

// set replaces the holders.
func (l *lock) set(holders ...holder) {
	l.Holders = holders
	if delete(l.fields, "holders"); len(holders) > 0 {
		l.fields["holders"], _ = json.Marshal(holders)
	}
}

// holder returns the holderIdentity of the lock.
func (l *lock) holder() string {
	switch {
	case len(l.Holders) > 0:
		return l.Holders[0].Host + "_" + l.Holders[0].Owner
	case l.Closed != nil:
		return closedBy
	}
	return ""
}

// foreign reports whether another program holds the lock.
func (l *lock) foreign() bool {
	return len(l.Holders) > 0 && l.Holders[0].Token == 0
}

// beats returns a hash of the leases of the lock, which changes when one of them is renewed or ends.
func (l *lock) beats() string {
	if len(l.Holders) == 0 && l.Closed == nil {
		return ""
	}
	sum := fnv.New64a()
	for _, h := range l.Holders {
		fmt.Fprintf(sum, "%q %d ", h.Owner, h.Beat)
	}
	if l.Closed != nil {
		fmt.Fprint(sum, l.Closed.Beat)
	}
	return strconv.FormatUint(sum.Sum64(), 36)
}

// meet replaces the holders if another program has written the spec since: client-go takes over when
// their leases are over. It returns the record.
func (l *lock) meet(s *kubeapi.Spec, name string, value []byte) []byte {
	switch s.Holder {
	case l.holder():
		return value
	case "":
		l.set()
	default:
		sum := fnv.New64a()
		_ = json.NewEncoder(sum).Encode(s)
		acquired, _ := time.Parse(time.RFC3339, s.Acquired)
		l.set(holder{
			Owner: s.Holder, Host: s.Holder, Since: acquired.UnixMicro(),
			TTL: s.Seconds * time.Second.Microseconds(), Beat: int64(sum.Sum64() >> 1), // changes with the spec
		})
		if l.fields["name"] == nil {
			l.fields["format"] = json.RawMessage("1")
			l.fields["name"], _ = json.Marshal(name)
		}
	}
	value, _ = json.Marshal(l.fields) // its parts are JSON
	return value
}

// ours returns the record without a holder of another program.
func (l *lock) ours(value []byte) []byte {
	if l.foreign() {
		l.set()
		value, _ = json.Marshal(l.fields)
	}
	return value
}

// spec returns the spec of the lock, or nil if that stays: the leases are the same, or another
// program holds the lock. The spec counts for client-go from when it sees it change, and client-go
// ignores fractions of a second. Another holder has another identity and number of transitions. While
// the holder stays, renewTime is in a later second with each change, whatever the clocks show. The
// spec is unchanged for the longest TTL before client-go takes over.
func (l *lock) spec(old version, now time.Time) *kubeapi.Spec {
	if l.foreign() || l.beats() == old.Beats {
		return nil
	}
	holder := l.holder()
	if next := time.Unix(old.Renewed+1, 0); holder == old.Holder && now.Before(next) {
		now = next
	}
	s := &kubeapi.Spec{Holder: holder, Acquired: stamp(now), Renewed: stamp(now), Transitions: old.Transitions}
	leases := l.Holders
	if l.Closed != nil {
		leases = append(leases[:len(leases):len(leases)], *l.Closed)
	}
	ttl := time.Duration(1)
	for _, h := range leases {
		ttl = max(ttl, time.Duration(h.TTL)*time.Microsecond)
	}
	s.Seconds = int64((ttl + time.Second - 1) / time.Second)
	if len(l.Holders) > 0 {
		s.Acquired = stamp(time.UnixMicro(l.Holders[0].Since))
	}
	if s.Holder != "" && s.Holder != old.Holder {
		s.Transitions = (s.Transitions + 1) & math.MaxInt32 // Kubernetes refuses more
	}
	return s
}
