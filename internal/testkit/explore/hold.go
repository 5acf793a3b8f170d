package explore

import (
	"encoding/binary"

	"github.com/fencelock/fencelock/internal/hold"
)

// Relies reports whether a holder relies on its lock: its hold is not over, also by its clock.
func Relies(h hold.Hold, now hold.Instant) bool {
	return !h.Ended() && !h.Step(hold.Event{Kind: hold.Look}, now).Lost
}

// HoldKey appends what h would do from now on. A hold that is over by its clock can still be renewed by
// an answer that is on its way.
func HoldKey(b []byte, h hold.Hold, now hold.Instant) []byte {
	if h.Ended() {
		return append(b, 0)
	}
	flags := byte(1)
	if h.Renewing() {
		flags |= 2
	}
	b = binary.AppendVarint(append(b, flags), int64(max(h.Left(now), -1)))
	return binary.AppendVarint(b, int64(h.Step(hold.Event{Kind: hold.Tick}, now).Wait))
}
