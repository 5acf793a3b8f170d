package kubetest

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// Client returns a client whose requests reach the server without a network, also in the bubbles of
// testing/synctest.
func (s *Server) Client() *http.Client { return &http.Client{Transport: direct{s}} }

// New returns a server that only its clients reach.
func New() *Server {
	return &Server{URL: "http://kubernetes.invalid", revision: 100, compacted: 100, objects: map[string]entry{}, changed: make(chan struct{})}
}

// direct is a connection to a server.
type direct struct{ *Server }

var errLost = errors.New("the connection was closed")

// RoundTrip lets the server serve a request. A handler that panics with
// http.ErrAbortHandler loses its answer.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	body, pipe := io.Pipe()
	w := &writer{header: http.Header{}, pipe: pipe, answer: make(chan *http.Response, 1)}
	go func() { // ends with the request
		defer func() {
			switch why := recover(); why {
			case nil:
			case http.ErrAbortHandler:
				close(w.answer)
			default:
				panic(why)
			}
			_ = pipe.Close()
		}()
		d.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
	}()
	select {
	case answer := <-w.answer:
		if answer == nil {
			return nil, errLost
		}
		answer.Body, answer.Request = body, r
		return answer, nil
	case <-r.Context().Done():
		_ = body.Close()
		return nil, r.Context().Err()
	}
}

// writer passes an answer to the client as it is written.
type writer struct {
	header http.Header
	pipe   *io.PipeWriter
	once   sync.Once
	answer chan *http.Response
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(code int) {
	w.once.Do(func() { w.answer <- &http.Response{StatusCode: code, Header: w.header.Clone()} })
}

func (w *writer) Write(text []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(text)
}

// Flush begins the answer.
func (w *writer) Flush() { w.WriteHeader(http.StatusOK) }
