package idempotent

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
)

// payload returns what is compared if the key of a request is used again.
func (h *handler) payload(r *http.Request, body []byte) []byte {
	contents := []string{r.Method, strings.ToLower(h.cfg.Host(r)), target(r)}
	var own []byte
	if h.cfg.Payload != nil {
		own = h.cfg.Payload(r, body)
	}
	if own != nil {
		contents = append(contents, "payload", string(own))
	} else {
		contents = append(contents, bodyContents(r, body)...)
	}
	return []byte(digest(contents...))
}

// bodyContents returns the contents of a body. A body that is not what its Content-Type says counts
// with all its bytes.
func bodyContents(r *http.Request, body []byte) []string {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	boundary := params["boundary"] // chosen anew for each request by many clients
	if err != nil || !strings.HasPrefix(kind, "multipart/") || boundary == "" {
		return append([]string{"body", r.Header.Get("Content-Type"), string(body)}, formContents(r)...)
	}
	delete(params, "boundary")
	kind = mime.FormatMediaType(kind, params)
	if r.MultipartForm != nil {
		return append([]string{"form", kind}, formContents(r)...)
	}
	parts, err := partContents(multipart.NewReader(bytes.NewReader(body), boundary))
	if err != nil {
		return []string{"body", r.Header.Get("Content-Type"), string(body)}
	}
	if kind == "multipart/form-data" { // some clients send its parts in a new order with each attempt
		sort.SliceStable(parts, func(i, j int) bool { return parts[i].name < parts[j].name })
	}
	all := []string{"parts", kind}
	for _, p := range parts {
		all = append(all, p.header, p.body)
	}
	return all
}

// formContents returns the contents of a form that a handler in front has parsed.
func formContents(r *http.Request) (all []string) {
	if len(r.PostForm) > 0 {
		all = append(all, r.PostForm.Encode())
	}
	if r.MultipartForm != nil {
		for _, name := range slices.Sorted(maps.Keys(r.MultipartForm.File)) {
			for _, file := range r.MultipartForm.File[name] {
				all = append(all, name, file.Filename, fmt.Sprint(file.Size))
			}
		}
	}
	return all
}

// part is one of several parts of a body.
type part struct{ name, header, body string }

// partContents returns the parts of a body.
func partContents(r *multipart.Reader) (all []part, err error) {
	for {
		next, err := r.NextRawPart()
		if err == io.EOF { //nolint:errorlint // a wrapped io.EOF is a body without its end
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(next)
		if err != nil {
			return nil, err
		}
		var header strings.Builder
		_ = http.Header(next.Header).Write(&header) // a strings.Builder does not fail
		all = append(all, part{next.FormName(), header.String(), string(body)})
	}
}

// target returns the path and query that the client sent, even if a handler in front has stripped a
// prefix.
func target(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.RequestURI()
	}
	return r.URL.RequestURI()
}

// digest returns the SHA-256 of texts, each preceded by its length.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(t))))
		h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil))
}
