//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// The default ports.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

const (
	connectReserve = 1500 * time.Millisecond // time for all attempts in addition to one timeout
	pingRarest     = 10 * time.Second        // the longest pause between two pings of an idle connection
	pingOftenest   = 500 * time.Millisecond  // the shortest pause
	pipeBuffer     = 32 << 10                // the client's default is 512 KiB, twice per connection
)

// RedisClient is how to reach the servers of a URL.
type RedisClient struct {
	Option rueidis.ClientOption
	secrets
}

// newRedisClient reads what all URLs of Redis have in common: user, timeout and TLS.
func newRedisClient(u *url.URL, q *query) (r RedisClient, err error) {
	if u.Opaque != "" || u.Fragment != "" || strings.Contains(u.Path, "@") {
		return r, errors.New("the URL cannot be understood")
	}
	r.Option = rueidis.ClientOption{
		ClientName:          "fencelock",
		DisableCache:        true, // no command here could be cached
		RingScaleEachConn:   8,    // 256 concurrent calls; a command makes few
		ReadBufferEachConn:  pipeBuffer,
		WriteBufferEachConn: pipeBuffer,
		ForceSingleClient:   true,
	}
	r.Option.Username = u.User.Username()
	r.Option.Password, _ = u.User.Password()
	r.keep(r.Option.Password)
	if r.Option.Password == "" && r.Option.Username != "" {
		return r, errors.New("the URL names a user and no password; write user:password@, or :password@ for the default user")
	}
	r.setTimes(q)
	r.Option.TLSConfig, err = parseTLS(q, q.only("tls", "on") || u.Scheme == "rediss")
	r.Option.Sentinel.TLSConfig = r.Option.TLSConfig
	return r, err
}

// setTimes sets the timeouts, from 100 ms to one minute. With less, a busy server would count as
// unreachable. More would be longer than most leases.
func (r *RedisClient) setTimes(q *query) {
	timeout := cmp.Or(q.duration("timeout", 100*time.Millisecond, "3s"), 3*time.Second)
	if timeout > time.Minute {
		q.fail("timeout", "write a duration of at most 1m, such as 3s")
	}
	// KeepAlive is also the interval at which the client pings a connection that receives nothing.
	// The client closes the connection if the ping is not answered within ConnWriteTimeout. For a
	// connection with pipelined requests there is no other timeout. So a stalled connection is
	// closed after at most twice the timeout, or after the timeout plus one second if that is
	// longer.
	r.Option.Dialer = net.Dialer{Timeout: timeout, KeepAlive: min(max(timeout/2, pingOftenest), pingRarest)}
	r.Option.Sentinel.Dialer = r.Option.Dialer
	r.Option.ConnWriteTimeout = timeout
}

// parseTLS reads certificates, if TLS is on. The certificate of a server must be valid for the host
// name in its address. Without ca, it must be signed by an authority that this system trusts.
func parseTLS(q *query, on bool) (config *tls.Config, err error) {
	ca, cert, key := q.Get("ca"), q.Get("cert"), q.Get("key")
	if !on {
		if ca != "" || cert != "" || key != "" { // certificates without TLS would look like a protection
			return nil, errors.New("ca, cert and key need tls=on")
		}
		return nil, nil
	}
	config = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		if config.RootCAs, err = authorities(ca); err != nil {
			return nil, err
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("cert and key go together; give both")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// authorities reads a file of certificate authorities, which replace those of the system.
func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca: %s holds no certificate in PEM", termtext.Word(file))
	}
	return pool, nil
}

// Connect connects, until a time limit or the end of ctx. It uses a goroutine, since
// rueidis.NewClient takes no context.
func (r *RedisClient) Connect(ctx context.Context) (rueidis.Client, error) {
	limit := r.Option.Dialer.Timeout + connectReserve
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	var client rueidis.Client // read after done
	done := make(chan error, 1)
	go func() { // ends soon after the timeout of the client
		var err error
		if client, err = rueidis.NewClient(r.Option); err == nil && ctx.Err() != nil { // Connect has returned
			client.Close()
			err = ctx.Err()
		}
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	switch {
	case err == nil:
		return client, nil
	case errors.Is(ctx.Err(), context.Canceled): // the caller gave up; nothing is wrong with the server
		return nil, ctx.Err()
	}
	if errors.Is(err, io.EOF) && r.isProxy(ctx) {
		return nil, &HintError{
			Err: fmt.Errorf("%w: redis at %s: a proxy answers here that does not pass on all commands",
				driver.ErrConfig, strings.Join(r.Option.InitAddress, ",")),
			Hint: "the address of the Redis server itself; twemproxy, for example, passes on no HELLO and no SUBSCRIBE",
		}
	}
	return nil, r.unreachable(r.inTime(err))
}

// isProxy reports whether the server answers PING, although it has closed the connection at the first
// command of the client, which is HELLO: Redis closes it only if it speaks TLS.
func (r *RedisClient) isProxy(ctx context.Context) bool {
	if r.Option.TLSConfig != nil || r.Option.DialCtxFn != nil || len(r.Option.InitAddress) != 1 {
		return false
	}
	conn, err := r.Option.Dialer.DialContext(ctx, "tcp", r.Option.InitAddress[0])
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(r.Option.Dialer.Timeout))
	_, err = io.WriteString(conn, "*1\r\n$4\r\nPING\r\n")
	first := make([]byte, 1)
	if err == nil {
		_, err = conn.Read(first)
	}
	return err == nil && (first[0] == '+' || first[0] == '-') // a password may be wanted
}

// inTime replaces the error of an attempt that took too long.
func (r *RedisClient) inTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", r.Option.Dialer.Timeout)
	}
	return err
}

// unreachable returns the error of the client with a hint.
func (r *RedisClient) unreachable(err error) error {
	hint := "check the user and the password in FENCELOCK_URL"
	if refused, ok := rueidis.IsRedisErr(err); ok && (redisconn.ServerError{Text: refused.Error()}).Denied() {
		err = fmt.Errorf("%w: %w", driver.ErrConfig, err) // it would refuse a retry too
		if strings.Contains(refused.Error(), "DB index") {
			hint = "check the number of the database in FENCELOCK_URL; the server has as many as its setting databases says"
		}
	}
	return explain(err, r.secrets, "redis at "+strings.Join(r.Option.InitAddress, ",")+": ", hint)
}

// addresses parses h1:p,h2:p, and adds missing ports.
func addresses(hosts, port string) ([]string, error) {
	var addrs []string
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, port)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// address adds a missing port. Its error does not contain the host, which may be a piece of a
// password.
func address(host, port string) (string, error) {
	u := url.URL{Host: host}
	name := u.Hostname()
	port = cmp.Or(u.Port(), port)
	n, err := strconv.Atoi(port)
	switch {
	// The last group of an IPv6 address without brackets would be taken for the port.
	case name == "" || strings.HasSuffix(host, ":") || strings.Contains(name, ":") && !strings.HasPrefix(host, "["):
		return "", errors.New("the URL names no host, or an empty one")
	case err != nil || n < 1 || n > 65535:
		return "", errors.New("the URL names a port that is not between 1 and 65535")
	}
	return net.JoinHostPort(name, port), nil
}

// database parses the number of a database; empty means 0.
func database(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, "/"))
	if err != nil || n < 0 {
		return 0, errors.New("the database is not a number")
	}
	return n, nil
}
