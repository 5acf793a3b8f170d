package fenceobject

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// HTTP is a Store on a server with GET, PUT and the conditions of RFC 9110. The server must respect
// the conditions of a PUT; one that ignores them makes the guard useless. If the server needs
// signed requests, sign them in the transport of Client. Keys are paths, whose segments are
// percent-encoded.
type HTTP struct {
	URL    string       // keys are appended to it: "https://objects.example/bucket/"
	Client *http.Client // nil means http.DefaultClient
}

// maxBody is the maximum size of an object, which is held in memory.
const maxBody = 64 << 20

// Get reads an object or its beginning.
func (h HTTP) Get(ctx context.Context, key string, limit int64) (head []byte, etag string, err error) {
	header := http.Header{"Cache-Control": {"no-cache"}, "Accept-Encoding": {"identity"}}
	if limit < maxBody {
		header.Set("Range", fmt.Sprintf("bytes=0-%d", limit-1))
	}
	response, err := h.do(ctx, http.MethodGet, key, nil, header)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusNotFound:
		return nil, "", nil
	case http.StatusOK, http.StatusPartialContent:
	default:
		return nil, "", fmt.Errorf("GET: %s", response.Status)
	}
	etag = response.Header.Get("ETag")
	if etag == "" || strings.HasPrefix(etag, "W/") {
		return nil, "", fmt.Errorf("GET: the ETag %q cannot be a condition of a write", etag)
	}
	limit = min(limit, maxBody+1)
	head, err = io.ReadAll(io.LimitReader(response.Body, limit))
	if len(head) > maxBody {
		return nil, "", fmt.Errorf("GET: the object has more than %d bytes", maxBody)
	}
	return head, etag, err
}

// Put writes an object on a condition. It has at most 64 MiB, including its first line.
func (h HTTP) Put(ctx context.Context, key string, body []byte, etag string) error {
	if len(body) > maxBody {
		return fmt.Errorf("PUT: the object has %d bytes, more than %d", len(body), maxBody)
	}
	header := http.Header{"If-Match": {etag}}
	if etag == "" {
		header = http.Header{"If-None-Match": {"*"}}
	}
	response, err := h.do(ctx, http.MethodPut, key, body, header)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return nil
	case http.StatusPreconditionFailed, http.StatusConflict:
		return fmt.Errorf("%w: PUT: %s", ErrChanged, response.Status)
	case http.StatusNotFound: // the object, or the bucket, does not exist
		if etag != "" {
			return fmt.Errorf("%w: PUT: %s", ErrChanged, response.Status)
		}
	}
	return fmt.Errorf("PUT: %s", response.Status)
}

// do sends a request. If a PUT is redirected with 301 to 303, http.Client sends a GET instead,
// whose response says nothing about the PUT, so do returns an error.
func (h HTTP) do(ctx context.Context, method, key string, body []byte, header http.Header) (*http.Response, error) {
	segments := strings.Split(key, "/")
	for i, segment := range segments {
		if segment == "" || segment == "." || segment == ".." {
			return nil, fmt.Errorf("the key %q is not a path of non-empty segments", key)
		}
		segments[i] = url.PathEscape(segment)
	}
	request, err := http.NewRequestWithContext(ctx, method, h.URL+strings.Join(segments, "/"), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = header
	client := h.Client
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if err == nil && response.Request != nil && response.Request.Method != method {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s: redirected to a %s of %s: set the URL that it leads to", method, response.Request.Method, response.Request.URL.Redacted())
	}
	return response, err
}
