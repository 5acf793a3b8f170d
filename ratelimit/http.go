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

// problem is a problem document of RFC 9457.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

// Handler passes requests to next if the limiter grants them, one event each. Other requests get a
// problem document with the status 429 (over the limit), 400 (invalid key), or 503 (the limiter
// could not decide).
//
// key returns what a request is counted for, such as an account, a token or an address. nil means
// the address of the connection, or the /64 network of an IPv6 address; behind a proxy that is the
// address of the proxy.
//
// Responses have the fields RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11, and those with status 429 also have Retry-After. The
// name of the policy is the name of the limiter. Its window is the time in which a whole burst
// becomes available, at least one second. The key is not in the fields. Without a decision, and
// while FailOpen grants everything, the fields are absent.
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

// refuse answers a request if the limiter returned an error. An invalid limit is not the client's
// fault.
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
	_ = json.NewEncoder(w).Encode(p) // an error means that the client has gone
}

// policyField returns the item of RateLimit-Policy: how many events in which window. The number is
// rounded down, so a client that spreads them over the window is refused at most one percent of
// them. Multiply before dividing, so that whole results are exact.
func (l *Limiter) policyField(r Result) string {
	events, per := float64(r.Limit.Events), float64(r.Limit.Per)
	window := max(1, math.Ceil(float64(r.Limit.Burst)*per/events/float64(time.Second)))
	return fmt.Sprintf("%s;q=%.0f;w=%.0f", l.item(), max(1, math.Floor(window*float64(time.Second)*events/per)), window)
}

// limitField returns the item of RateLimit: how many events are available, and when that changes.
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

// item returns the limiter's name as a string of a structured field.
func (l *Limiter) item() string {
	name := l.name
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		name = url.PathEscape(name)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// seconds rounds up, so that a client does not retry too early.
func seconds(d time.Duration) string { return strconv.FormatInt(wholeSeconds(d), 10) }

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// address returns the address that a request comes from. An IPv6 client usually owns a whole /64
// network, so the network counts.
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
