package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/fencelock/fencelock/driver"
)

// TestAskKeeper: release gets the answer of a keeper on the same host, and asks the server if there
// is no keeper or if the keeper has no answer.
func TestAskKeeper(t *testing.T) {
	for want, err := range map[string]error{
		answerReleased: nil,
		answerLost:     fmt.Errorf("the lease is over: %w", driver.ErrNotHeld),
		"":             errors.New("the server does not answer"),
	} {
		owner := uuid.NewString()
		requests, stop := listenForRelease(owner)
		go func() { (<-requests).answer(err) }() // ends with the question below
		if got := askKeeper(owner); got != want {
			t.Errorf("a keeper that gets %v answers %q, want %q", err, got, want)
		}
		stop()
		if got := askKeeper(owner); got != "" {
			t.Errorf("without a keeper the answer is %q", got)
		}
	}
}
