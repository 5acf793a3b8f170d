package idempotent_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// upload makes the body of an upload with a boundary of its own.
func upload(t *testing.T, note, file string) (contentType, body string) {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, err := form.CreateFormFile("photo", "photo.jpg")
	if err == nil {
		_, err = io.WriteString(part, file)
	}
	if err := errors.Join(err, form.WriteField("note", note), form.Close()); err != nil {
		t.Fatal(err)
	}
	return form.FormDataContentType(), b.String()
}

// send posts a body with the key a.
func send(t *testing.T, url, contentType, body string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Idempotency-Key", "a")
	r.Header.Set("Authorization", "alice")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := (&http.Transport{DisableCompression: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// TestHTTPUploadAgain: an upload that is sent again with another boundary is the same request, whether
// the handler or one in front parses it. Another part is another request.
func TestHTTPUploadAgain(t *testing.T) {
	t.Parallel()
	for _, inFront := range []bool{false, true} {
		var runs atomic.Int64
		h := newStore(nil).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			if file, _, err := r.FormFile("photo"); err != nil || r.FormValue("note") != "hello" {
				t.Errorf("%v, %v, %v", file, r.Form, err)
			}
		}), nil)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if inFront {
				if err := r.ParseMultipartForm(1000); err != nil {
					t.Error(err)
				}
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		for _, c := range []struct {
			note, file string
			want       int
		}{{"hello", "pixels", 200}, {"hello", "pixels", 200}, {"bye", "pixels", 422}, {"hello", "more pixels", 422}} {
			contentType, body := upload(t, c.note, c.file)
			if res := send(t, server.URL, contentType, body); res.StatusCode != c.want {
				t.Errorf("parsed in front: %t, %s %s: %s", inFront, c.note, c.file, res.Status)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("parsed in front: %t: %d runs", inFront, runs.Load())
		}
	}
}

// TestHTTPUploadInAnotherOrder: some clients send the parts of a form in another order when they try
// again. Parts of one name have an order, and so have the parts of what is no form.
func TestHTTPUploadInAnotherOrder(t *testing.T) {
	t.Parallel()
	body := func(kind string, parts ...string) (string, string) {
		var b bytes.Buffer
		form := multipart.NewWriter(&b)
		for _, part := range parts {
			name, value, _ := strings.Cut(part, "=")
			if err := form.WriteField(name, value); err != nil {
				t.Fatal(err)
			}
		}
		if err := form.Close(); err != nil {
			t.Fatal(err)
		}
		return "multipart/" + kind + "; boundary=" + form.Boundary(), b.String()
	}
	for _, kind := range []string{"form-data", "mixed"} {
		url := serve(t, newStore(nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
		moved := map[string]int{"form-data": 200, "mixed": 422}[kind]
		for _, c := range []struct {
			parts []string
			want  int
		}{
			{[]string{"a=1", "b=2", "a=3"}, 200},
			{[]string{"b=2", "a=1", "a=3"}, moved},
			{[]string{"a=1", "a=3", "b=2"}, moved},
			{[]string{"a=3", "b=2", "a=1"}, 422},
			{[]string{"a=1", "b=3", "a=2"}, 422},
			{[]string{"a=1", "b=2"}, 422},
		} {
			contentType, body := body(kind, c.parts...)
			if res := send(t, url, contentType, body); res.StatusCode != c.want {
				t.Errorf("%s %v: %s, want %d", kind, c.parts, res.Status, c.want)
			}
		}
	}
}

// TestHTTPUploadCut: an upload without its end counts with all its bytes.
func TestHTTPUploadCut(t *testing.T) {
	t.Parallel()
	url := serve(t, newStore(nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	contentType, body := upload(t, "hello", "pixels")
	body = body[:len(body)-10]
	other, _ := upload(t, "hello", "pixels")
	for _, c := range []struct {
		contentType string
		want        int
	}{{contentType, 200}, {contentType, 200}, {other, 422}} {
		if res := send(t, url, c.contentType, body); res.StatusCode != c.want {
			t.Errorf("%s, want %d", res.Status, c.want)
		}
	}
}

// TestHTTPPayload: a service decides which bodies are the same request.
func TestHTTPPayload(t *testing.T) {
	t.Parallel()
	url := serve(t, newStore(nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), &idempotent.HTTP{
		Payload: func(r *http.Request, body []byte) []byte {
			if r.Header.Get("Content-Type") != "application/json" {
				return nil
			}
			return bytes.ReplaceAll(body, []byte(" "), nil)
		},
	})
	for _, c := range []struct {
		contentType, body string
		want              int
	}{
		{"application/json", `{"cents": 1}`, 200},
		{"application/json", `{"cents":1}`, 200},
		{"application/json", `{"cents":2}`, 422},
		{"text/plain", `{"cents": 1}`, 422},
	} {
		if res := send(t, url, c.contentType, c.body); res.StatusCode != c.want {
			t.Errorf("%s %s: %s", c.contentType, c.body, res.Status)
		}
	}
}

// TestHTTPHeaders: fields of a handler in front stay, and those about the first exchange are not
// repeated.
func TestHTTPHeaders(t *testing.T) {
	t.Parallel()
	var exchanges atomic.Int64
	for _, c := range []struct {
		unstored      []string
		cookies, kept []string // of a replay
	}{
		{nil, []string{"csrf=2"}, []string{"first"}},
		{[]string{"x-kept"}, []string{"csrf=2", "session=1"}, nil},
	} {
		h := newStore(nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Set-Cookie", "session=1")
			w.Header().Set("Vary", "Accept")
			w.Header().Set("X-Request-Id", "of the first")
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set("X-Kept", "first")
			w.Header().Set("Content-Type", "text/csv")
			w.Header()["X-Odd"] = []string{"a\x01b\r\nc"}
		}), &idempotent.HTTP{Unstored: c.unstored})
		exchanges.Store(0)
		front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", fmt.Sprint("csrf=", exchanges.Add(1)))
			w.Header().Set("Vary", "Origin")
			w.Header().Set("RateLimit", `"api";r=9`)
			w.Header().Set("Content-Type", "text/plain")
			h.ServeHTTP(w, r)
		})
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "a")
		r.Header.Set("Authorization", "alice")
		for i, want := range []struct {
			replayed      string
			cookies, kept []string
		}{{"", []string{"csrf=1", "session=1"}, []string{"first"}}, {"true", c.cookies, c.kept}} {
			w := httptest.NewRecorder()
			front.ServeHTTP(w, r.Clone(t.Context()))
			got := w.Header()
			if got.Get("Idempotent-Replayed") != want.replayed || !slices.Equal(got.Values("Set-Cookie"), want.cookies) ||
				!slices.Equal(got.Values("Vary"), []string{"Origin", "Accept"}) || !slices.Equal(got.Values("X-Kept"), want.kept) ||
				!slices.Equal(got.Values("RateLimit"), []string{`"api";r=9`}) || !slices.Equal(got.Values("Content-Type"), []string{"text/csv"}) {
				t.Errorf("not stored: %v, exchange %d: %v", c.unstored, i, got)
			}
			if c.unstored == nil && i == 1 && (got.Get("X-Request-Id") != "" || got.Get("Trailer") != "" || got.Get("X-Odd") != "a b  c") {
				t.Errorf("the replay: %v", got)
			}
		}
	}
}

// zipped compresses the response of next if the client accepts it.
func zipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		next.ServeHTTP(zipWriter{w, z}, r)
	})
}

// zipWriter is a response whose body is compressed.
type zipWriter struct {
	http.ResponseWriter
	to io.Writer
}

func (w zipWriter) Write(b []byte) (int, error) { return w.to.Write(b) }

// TestHTTPCompression: each client gets an encoding that it accepts, with the compression in front and
// behind.
func TestHTTPCompression(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "tea") })
	for name, h := range map[string]http.Handler{
		"in front": zipped(newStore(nil).Handler(next, nil)),
		"behind":   newStore(nil).Handler(zipped(next), nil),
	} {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		for _, accepts := range []string{"gzip", "identity", "gzip"} {
			res := send(t, server.URL, "text/plain", "x", "Accept-Encoding", accepts)
			body := io.Reader(res.Body)
			encoding := res.Header.Get("Content-Encoding")
			if encoding == "gzip" {
				z, err := gzip.NewReader(body)
				if err != nil {
					t.Fatal(err)
				}
				body = z
			}
			text, err := io.ReadAll(body)
			if err != nil || string(text) != "tea" || encoding == "gzip" && accepts != "gzip" || name == "in front" && (encoding == "gzip") != (accepts == "gzip") {
				t.Errorf("%s, to a client that accepts %s: %q encoded %q, %v", name, accepts, text, encoding, err)
			}
		}
	}
}

// TestHTTPRecord: the stored form of a response, as the page shows it.
func TestHTTPRecord(t *testing.T) {
	t.Parallel()
	engine := memlock.New(nil)
	h := jobs(engine, idempotent.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "order 1\n")
	}), nil)
	post(h, "/", "a")
	list, err := engine.Records().List(context.Background(), "idempotent/")
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	head, response, _ := strings.Cut(string(list[0].Value), "\n")
	if !strings.HasPrefix(head, `{"state":"done",`) || response != "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nLocation: /orders/1\r\n\r\norder 1\n" {
		t.Errorf("%s, %q", head, response)
	}
	for _, bad := range []string{"", "gob", "HTTP/1.1 x\r\n\r\n", "HTTP/1.1 200 OK\r\nno field\r\n\r\n", "HTTP/1.1 20"} {
		if _, err := engine.Records().Swap(context.Background(), list[0].Key, []byte(head+"\n"+bad), list[0].Version, 0); err != nil {
			t.Fatal(err)
		}
		if w := post(h, "/", "a"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("the record %q: %d %s", bad, w.Code, w.Body)
		}
		if list, err = engine.Records().List(context.Background(), "idempotent/"); err != nil {
			t.Fatal(err)
		}
	}
}
