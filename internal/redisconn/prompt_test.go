package redisconn_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencelock/fencelock/internal/redisconn"
)

func TestPromptly(t *testing.T) {
	same := func(err error) error { return err }
	answer := errors.New("the answer")
	if err := redisconn.Promptly(t.Context(), func() error { return answer }, same); !errors.Is(err, answer) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan struct{})
	defer close(stuck)
	if err := redisconn.Promptly(ctx, func() error { cancel(); <-stuck; return answer }, same); !errors.Is(err, context.Canceled) {
		t.Errorf("of a function that hangs: %v", err)
	}
}

func TestCallbacks(t *testing.T) {
	var g redisconn.Callbacks
	passed := 0
	g.Run(func() { passed++ })
	g.Close()
	g.Run(func() { passed++ })
	if passed != 1 {
		t.Errorf("%d callbacks passed", passed)
	}
}
