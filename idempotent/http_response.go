package idempotent

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"net/http"
	"strconv"
)

// reply is a response in its stored form.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// encode returns a gob. Header values need not be UTF-8, which rules out JSON.
func (p *reply) encode() []byte {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(p); err != nil {
		panic(err) // numbers, strings and bytes always encode
	}
	return b.Bytes()
}

func decodeReply(data []byte) (*reply, error) {
	p := new(reply)
	return p, gob.NewDecoder(bytes.NewReader(data)).Decode(p)
}

func (p *reply) send(w http.ResponseWriter) {
	for name, values := range p.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.Body) // the client may have closed the connection
}

// recorder stores the response of a handler. Like net/http, it refuses what the client would not
// get.
type recorder struct {
	method   string // of the request
	header   http.Header
	sent     http.Header // as it was when the status was written
	status   int
	declared int64 // the Content-Length, -1 if there is none
	written  int64 // what the handler tried to write
	body     bytes.Buffer
}

// Header returns the header that a handler writes to.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader stores the first status that is not informational. An invalid status panics, as in
// net/http, and nothing is stored.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idempotent: %d is not an HTTP status", status))
	}
	if w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status, w.sent, w.declared = status, w.header.Clone(), -1
	if n, err := strconv.ParseInt(w.sent.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		w.declared = n
	}
}

// Write stores a part of the body.
func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !w.hasBody() && len(b) > 0 {
		return 0, http.ErrBodyNotAllowed
	}
	if w.written += int64(len(b)); w.declared >= 0 && w.written > w.declared {
		return 0, http.ErrContentLength
	}
	return w.body.Write(b)
}

// hasBody reports whether the status allows a body.
func (w *recorder) hasBody() bool {
	return w.status >= 200 && w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// cut returns an error if the handler did not write the length that it declared. net/http closes the
// connection then, so the client gets an error.
func (w *recorder) cut() error {
	if w.declared < 0 || w.written == w.declared || !w.hasBody() || w.method == http.MethodHead {
		return nil
	}
	return fmt.Errorf("idempotent: the handler wrote %d of %d bytes that its Content-Length declares", w.written, w.declared)
}
