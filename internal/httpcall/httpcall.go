// Package httpcall makes the HTTP requests of the stores.
package httpcall

import (
	"context"
	"errors"
	"net/http"
)

// Do sends a request. If its deadline passes without an answer, it closes the idle connections of the
// client: a NAT may have dropped them all, and each would cost an attempt.
func Do(client *http.Client, r *http.Request) (*http.Response, error) {
	answer, err := client.Do(r)
	if errors.Is(err, context.DeadlineExceeded) {
		client.CloseIdleConnections()
	}
	return answer, err
}
