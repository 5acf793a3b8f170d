package s3records

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/awslogin"
)

// bucket sends requests to a bucket.
type bucket struct {
	name, region, endpoint, prefix string

	client *http.Client
	sign   func(r *http.Request, hash string) error
	seen   func(sent, date time.Time) // is called with the Date of each answer
}

// object is the answer to the read of an object. If there is none, its ETag is empty.
type object struct {
	etag string
	body []byte
	date time.Time
}

var (
	errChanged = errors.New("the object has changed")                 // 412: nothing was written
	errBusy    = errors.New("another write of the object is running") // 409: nothing was written
)

// maxBody is greater than any answer: an object has at most driver.MaxRecord bytes and a line, a
// list has a thousand keys.
const maxBody = 8 << 20

func (b *bucket) get(ctx context.Context, key string) (object, error) {
	status, header, body, err := b.do(ctx, http.MethodGet, b.prefix+key, nil, nil, nil)
	if err != nil {
		return object{}, err
	}
	o := object{header.Get("ETag"), body, date(header)}
	switch code, err := problem(status, body); {
	case status == http.StatusOK && o.etag == "", o.date.IsZero():
		return object{}, fmt.Errorf("%w: the store's answer has no ETag or no Date", driver.ErrConfig)
	case status == http.StatusOK:
		return o, nil
	case status == http.StatusNotFound && code != "NoSuchBucket":
		return object{date: o.date}, nil
	default:
		return object{}, err
	}
}

// put writes an object if its ETag is etag, or if there is none and etag is empty. It returns the
// new ETag. After an error other than errChanged, errBusy and ErrConfig the object may have been
// written, or may be written later.
func (b *bucket) put(ctx context.Context, key string, body []byte, etag string) (string, error) {
	condition := http.Header{"If-Match": {etag}}
	if etag == "" {
		condition = http.Header{"If-None-Match": {"*"}}
	}
	status, header, text, err := b.do(ctx, http.MethodPut, b.prefix+key, nil, condition, body)
	if err != nil {
		return "", err
	}
	next := header.Get("ETag")
	switch code, err := problem(status, text); {
	case status == http.StatusOK && next == "":
		return "", errors.New("the store's answer to a write has no ETag")
	case status == http.StatusOK:
		return next, nil
	case status == http.StatusPreconditionFailed, status == http.StatusNotFound && code != "NoSuchBucket":
		return "", errChanged
	case status == http.StatusConflict:
		return "", errBusy
	default:
		return "", err
	}
}

func (b *bucket) delete(ctx context.Context, key string) error {
	status, _, text, err := b.do(ctx, http.MethodDelete, b.prefix+key, nil, nil, nil)
	if err == nil && status/100 != 2 {
		_, err = problem(status, text)
	}
	return err
}

// list returns a page of object keys that have a prefix, and the token of the next page.
func (b *bucket) list(ctx context.Context, prefix, token string) (keys []string, next string, err error) {
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {b.prefix + prefix}}
	if token != "" {
		query.Set("continuation-token", token)
	}
	status, _, body, err := b.do(ctx, http.MethodGet, "", query, nil, nil)
	if err != nil {
		return nil, "", err
	}
	if status != http.StatusOK {
		_, err := problem(status, body)
		return nil, "", err
	}
	var page struct {
		Contents []struct{ Key string }
		Next     string `xml:"NextContinuationToken"`
	}
	if err := xml.Unmarshal(body, &page); err != nil {
		return nil, "", fmt.Errorf("the store's list: %w", err)
	}
	for _, c := range page.Contents {
		key, err := url.QueryUnescape(c.Key)
		if err != nil {
			return nil, "", fmt.Errorf("the store's list: %w", err)
		}
		keys = append(keys, strings.TrimPrefix(key, b.prefix))
	}
	return keys, page.Next, nil
}

// do sends a request and reads the answer. It follows no redirects, which S3 uses for the wrong
// region.
func (b *bucket) do(ctx context.Context, method, key string, query url.Values, header http.Header, body []byte) (int, http.Header, []byte, error) {
	base := "https://" + b.name + ".s3." + b.region + ".amazonaws.com/"
	if b.endpoint != "" {
		base = b.endpoint + "/" + b.name + "/"
	}
	// A nil body, unlike an empty one, makes net/http send no Content-Length in a GET.
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, base, content)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	r.URL.RawPath = r.URL.EscapedPath() + awslogin.Escape(key, "/")
	r.URL.Path += key
	r.URL.RawQuery = awslogin.Query(query)
	for name, values := range header {
		r.Header[name] = values
	}
	hash := sha256.Sum256(body)
	if err := b.sign(r, hex.EncodeToString(hash[:])); err != nil {
		if errors.Is(err, awslogin.ErrNone) {
			err = fmt.Errorf("%w: %w", driver.ErrConfig, err)
		}
		return 0, nil, nil, fmt.Errorf("sign a request: %w", err)
	}
	client := *b.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	sent := time.Now()
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer answer.Body.Close()
	if at := date(answer.Header); !at.IsZero() {
		b.seen(sent, at)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	return answer.StatusCode, answer.Header, text, err
}

// date returns the time of an answer by the store's clock, or the zero time.
func date(header http.Header) time.Time {
	t, _ := http.ParseTime(header.Get("Date"))
	return t
}

// problem returns the code of an answer that is an error, and the error.
func problem(status int, body []byte) (code string, err error) {
	var answer struct{ Code, Message string }
	_ = xml.Unmarshal(body, &answer) // a proxy's answer is not XML
	text := strings.TrimSpace(fmt.Sprintf("%d %s: %s", status, answer.Code, answer.Message))
	hint := ""
	switch {
	case answer.Code == "RequestTimeTooSkewed":
		hint = " (set this host's clock)"
	case answer.Code == "NoSuchBucket":
		hint = " (create the bucket)"
	case answer.Code == "ExpiredToken", status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return answer.Code, errors.New(text)
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		hint = " (the login needs s3:GetObject, s3:PutObject and s3:ListBucket)"
	case status/100 == 3:
		hint = " (set the region or the endpoint of the bucket)"
	case status == http.StatusNotImplemented:
		hint = " (the store has no conditional writes)"
	case status >= 500:
		return answer.Code, errors.New(text)
	}
	return answer.Code, fmt.Errorf("%w: the store answers %s%s", driver.ErrConfig, text, hint)
}
