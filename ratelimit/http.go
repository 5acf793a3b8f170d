package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// quotaExceeded is the type of the problem document of a refusal.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// problem is a document of RFC 9457.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

// Handler passes on the requests that the limiter grants, one event each. The others get a
// problem document: 429 if there are too many, 400 if the key makes no sense, and 503 if
// the limiter did not decide.
//
// key names what a request counts for: an account, a token, an address. nil means the
// address that the connection comes from, or the /64 network of an IPv6 one; behind a proxy
// that is the proxy's.
//
// Every response that was decided about has the fields RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11, and one of 429 has Retry-After as well: the
// policy's name is the limiter's, and its window is what a burst takes to come back, at
// least a second. The key is not in them. While everything is granted because the engine
// is down there are none.
func Handler(l *Limiter, key func(*http.Request) string, next http.Handler) http.Handler {
	if key == nil {
		key = address
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result, err := l.Allow(r.Context(), key(r))
		if err != nil {
			l.refuse(w, err)
			return
		}
		if result.Err == nil || l.cfg.Down == FailLocal {
			w.Header().Add("RateLimit-Policy", l.policyField(result))
			w.Header().Add("RateLimit", l.limitField(result))
		}
		if !result.OK {
			w.Header().Set("Retry-After", seconds(result.RetryAfter))
			(&problem{Type: quotaExceeded, Title: "too many requests", Status: http.StatusTooManyRequests, Violated: []string{l.name}}).answer(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers for a limiter that did not decide. A limit that makes no sense is no fault
// of the request.
func (l *Limiter) refuse(w http.ResponseWriter, err error) {
	p := problem{Type: "about:blank", Title: "the rate limit could not be checked", Status: http.StatusServiceUnavailable}
	if errors.Is(err, driver.ErrInvalid) && l.bad == nil {
		p.Title, p.Status = "the rate limit cannot be kept for this request", http.StatusBadRequest
	}
	p.answer(w)
}

func (p *problem) answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client has gone, if that fails
}

// policyField is an item of RateLimit-Policy: how many events in which window, at the rate.
// Of so many that are spread over each window a percent is refused at most. Whole numbers
// are divided last, so that whole results are exact.
func (l *Limiter) policyField(r Result) string {
	events, per := float64(r.Limit.Events), float64(r.Limit.Per)
	window := max(1, math.Ceil(float64(r.Limit.Burst)*per/events/float64(time.Second)))
	return fmt.Sprintf("%s;q=%.0f;w=%.0f", l.item(), max(1, math.Floor(window*float64(time.Second)*events/per)), window)
}

// limitField is an item of RateLimit: how many events there are now, and for how long there
// are no more.
func (l *Limiter) limitField(r Result) string {
	field := fmt.Sprintf("%s;r=%d", l.item(), r.Remaining)
	switch {
	case !r.OK:
		return field + ";t=" + seconds(r.RetryAfter)
	case r.Next > 0:
		return field + ";t=" + seconds(r.Next)
	}
	return field
}

// item is the limiter's name as a string of a structured field.
func (l *Limiter) item() string {
	name := l.name
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		name = url.PathEscape(name)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// seconds writes a time that is not over before it says so.
func seconds(d time.Duration) string { return strconv.FormatInt(wholeSeconds(d), 10) }

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// address is where a request comes from: whoever has one address of an IPv6 network has
// all of it.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if network, err := a.Prefix(64); err == nil {
			return network.String()
		}
	}
	return a.String()
}
