// Package awslogin signs requests to Amazon's services and to stores with the interface of S3, with
// signature version 4, as described in "AWS Signature Version 4 for API requests".
package awslogin

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Sign adds a signature to a request whose body has this SHA-256 hash, in hexadecimal digits. It
// signs all headers that are set.
func (l *Login) Sign(r *http.Request, hash string) error {
	keys, err := l.current(r.Context())
	if err != nil {
		return err
	}
	keys.sign(r, hash, l.service, l.region, time.Now())
	return nil
}

func (k keys) sign(r *http.Request, hash, service, region string, now time.Time) {
	stamp := now.UTC().Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", hash)
	if k.token != "" {
		r.Header.Set("X-Amz-Security-Token", k.token)
	}
	names, headers := canonicalHeaders(r)
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	request := strings.Join([]string{r.Method, path, r.URL.RawQuery, headers, names, hash}, "\n")
	scope := stamp[:8] + "/" + region + "/" + service + "/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hexHash(request)
	key := []byte("AWS4" + k.secret)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x", k.id, scope, names, mac(key, text)))
}

// canonicalHeaders returns the names of the headers to sign, and the headers, each on a line.
func canonicalHeaders(r *http.Request) (names, lines string) {
	values := map[string]string{"host": r.URL.Host}
	for name, all := range r.Header {
		values[strings.ToLower(name)] = strings.Join(all, ",")
	}
	var sorted []string
	for name := range values {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		lines += name + ":" + strings.Join(strings.Fields(values[name]), " ") + "\n"
	}
	return strings.Join(sorted, ";"), lines
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexHash(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// Escape percent-encodes a text as signatures want it: all bytes except for letters, digits, "-",
// ".", "_", "~" and those in also.
func Escape(text, also string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		switch {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', strings.IndexByte("-._~"+also, c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Query encodes a query as signatures want it.
func Query(query url.Values) string { return strings.ReplaceAll(query.Encode(), "+", "%20") }
