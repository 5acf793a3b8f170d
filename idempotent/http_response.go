package idempotent

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// unstored is the default of HTTP.Unstored.
var unstored = []string{
	"Set-Cookie", "Date", "Age", "Server-Timing", "Ratelimit", "Ratelimit-Policy", "Request-Id",
	"X-Request-Id", "X-Correlation-Id", "Traceparent", "Tracestate", "Traceresponse",
}

// hopByHop are fields about one connection.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// lists are response fields that may occur several times, or that handlers in front commonly set
// along with their own.
var lists = []string{
	"Access-Control-Expose-Headers", "Allow", "Content-Security-Policy", "Link", "Ratelimit",
	"Ratelimit-Policy", "Server-Timing", "Set-Cookie", "Vary", "Via", "Warning", "Www-Authenticate",
}

// reply is a response.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
}

const contentType = "Content-Type"

// encode returns the stored form, an HTTP/1.1 response without the fields that are not stored.
func (p *reply) encode(unstored []string) []byte {
	header := http.Header{}
	for name, values := range p.Header {
		same := func(other string) bool { return strings.EqualFold(name, other) }
		if !slices.ContainsFunc(unstored, same) && !slices.ContainsFunc(hopByHop, same) {
			for _, value := range values {
				header[name] = append(header[name], printable(value))
			}
		}
	}
	if values, ok := p.Header[contentType]; ok && len(values) == 0 {
		header[contentType] = []string{""} // the handler wants no type to be guessed
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", p.Status, http.StatusText(p.Status))
	_ = header.Write(&b) // a bytes.Buffer does not fail
	b.WriteString("\r\n")
	b.Write(p.Body)
	return b.Bytes()
}

// printable replaces the bytes that a field value must not have.
func printable(value string) string {
	b := []byte(value)
	for i, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			b[i] = ' '
		}
	}
	return string(b)
}

// decodeReply decodes a stored response.
func decodeReply(data []byte) (*reply, error) {
	in := bufio.NewReader(bytes.NewReader(data))
	head := textproto.NewReader(in)
	line, err := head.ReadLine()
	if err != nil {
		return nil, fmt.Errorf("idempotent: the stored response has no status: %w", err)
	}
	p := new(reply)
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %3d", &p.Status); err != nil || p.Status < 100 {
		return nil, fmt.Errorf("idempotent: the stored response begins with %.40q", line)
	}
	header, err := head.ReadMIMEHeader()
	if err != nil {
		return nil, fmt.Errorf("idempotent: the stored response has an invalid header: %w", err)
	}
	p.Header = http.Header(header)
	if values, ok := p.Header[contentType]; ok && values[0] == "" {
		p.Header[contentType] = nil
	}
	p.Body, err = io.ReadAll(in)
	return p, err
}

// send sends the response. Fields that are lists are added to those of handlers in front.
func (p *reply) send(w http.ResponseWriter, replayed bool) {
	for name, values := range p.Header {
		if slices.Contains(lists, http.CanonicalHeaderKey(name)) {
			values = append(slices.Clip(w.Header()[name]), values...)
		}
		w.Header()[name] = values
	}
	if replayed {
		w.Header().Set("Idempotent-Replayed", "true")
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

// cut returns an error if the response is shorter than the handler declared.
func (w *recorder) cut() error {
	if w.declared < 0 || int64(w.body.Len()) == w.declared || !w.hasBody() || w.method == http.MethodHead {
		return nil
	}
	return fmt.Errorf("idempotent: the handler wrote %d of %d bytes that its Content-Length declares", w.body.Len(), w.declared)
}
