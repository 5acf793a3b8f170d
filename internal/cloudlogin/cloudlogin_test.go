package cloudlogin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fencelock/fencelock/internal/cloudlogin"
)

// TestSilentSource: while a source does not answer one request, another one ends with its own context.
func TestSilentSource(t *testing.T) {
	asked, end := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-end
	}))
	t.Cleanup(s.Close)
	t.Setenv("AZURE_CLIENT_ID", "")
	t.Setenv("IDENTITY_ENDPOINT", s.URL)
	login := cloudlogin.Azure(http.DefaultClient)
	sign := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://account.example/", nil)
		if err != nil {
			return err
		}
		return login.Sign(r, "")
	}
	first := make(chan error, 1)
	go func() { first <- sign(t.Context()) }() // ends with the answer
	<-asked
	brief, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sign(brief); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
	close(end)
	if err := <-first; err == nil {
		t.Error("an empty answer has no token")
	}
}
