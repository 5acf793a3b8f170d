//go:build unix

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// redisParameters is what the URLs of a scheme may say after the question mark.
func redisParameters(scheme string) []string {
	known := []string{"quarantine", "max-ttl", "eviction", "min-replicas", "replica-lag", "marker-life", "retention", "prefix", "timeout", "insecure"}
	switch scheme {
	case "rediss":
		known = append(known, "ca", "cert", "key")
	case "redis+unix":
		known = append(known, "db")
	case "redis+cluster":
		known = append(known, "tls", "ca", "cert", "key")
	case "redis+sentinel":
		known = append(known, "tls", "ca", "cert", "key", "sentinel-user", "sentinel-password")
	}
	return known
}

// setTimes bounds how long the server may stay silent.
func (r *redisTarget) setTimes(_ *url.URL, query url.Values) error {
	timeout := 3 * time.Second
	if query.Has("timeout") {
		var err error
		timeout, err = time.ParseDuration(query.Get("timeout"))
		if err != nil || timeout < 100*time.Millisecond || timeout > time.Minute {
			return fmt.Errorf("timeout=%s: write a time between 100ms and 1m, such as 3s", show(query.Get("timeout")))
		}
	}
	r.client.Dialer = net.Dialer{Timeout: timeout, KeepAlive: pingEvery}
	r.client.Sentinel.Dialer = r.client.Dialer
	r.client.ConnWriteTimeout = timeout
	return nil
}

// setEngine reads what concerns the locks.
func (r *redisTarget) setEngine(_ *url.URL, query url.Values) (err error) {
	r.engine.Prefix = query.Get("prefix")
	r.engine.Quarantine, err = word(query, "quarantine", "on")
	if err == nil && r.engine.Quarantine && r.cluster {
		err = errors.New("quarantine=on is not available on a cluster; use redis+sentinel://, or guard the data with fencing tokens")
	}
	allowed, wrong := word(query, "eviction", "allow")
	r.engine.AllowEviction = allowed
	return cmp.Or(err, wrong, r.setMaxTTL(query), r.setReplicaLag(query), r.setMarkerLife(query), r.setRetention(query), r.setMinReplicas(query))
}

// word reads a parameter that has one value only, and reports whether it is
// given.
func word(query url.Values, name, only string) (bool, error) {
	if !query.Has(name) {
		return false, nil
	}
	if v := query.Get(name); v != only {
		return false, fmt.Errorf("%s=%s: the only value is %s=%s", name, show(v), name, only)
	}
	return true, nil
}

func (r *redisTarget) setMaxTTL(query url.Values) (err error) {
	if !query.Has("max-ttl") {
		return nil
	}
	if !r.engine.Quarantine {
		return errors.New("max-ttl means something with quarantine=on only; leave it out")
	}
	r.engine.MaxTTL, err = time.ParseDuration(query.Get("max-ttl"))
	if err != nil || r.engine.MaxTTL < shortestTTL {
		return fmt.Errorf("max-ttl=%s: write a time of at least %v, such as 30s", show(query.Get("max-ttl")), shortestTTL)
	}
	return nil
}

func (r *redisTarget) setReplicaLag(query url.Values) (err error) {
	if !query.Has("replica-lag") {
		return nil
	}
	if !r.engine.Quarantine {
		return errors.New("replica-lag means something with quarantine=on only; leave it out")
	}
	r.engine.ReplicaLag, err = time.ParseDuration(query.Get("replica-lag"))
	if err != nil || r.engine.ReplicaLag < time.Second {
		return fmt.Errorf("replica-lag=%s: write the servers' min-replicas-max-lag, such as 10s", show(query.Get("replica-lag")))
	}
	return nil
}

func (r *redisTarget) setMarkerLife(query url.Values) (err error) {
	if !query.Has("marker-life") {
		return nil
	}
	if !r.engine.Quarantine {
		return errors.New("marker-life means something with quarantine=on only; leave it out")
	}
	r.engine.MarkerLife, err = time.ParseDuration(query.Get("marker-life"))
	if err != nil || r.engine.MarkerLife < time.Minute {
		return fmt.Errorf("marker-life=%s: write a time of at least 1m, such as 2160h", show(query.Get("marker-life")))
	}
	return nil
}

func (r *redisTarget) setRetention(query url.Values) (err error) {
	if !query.Has("retention") {
		return nil
	}
	r.engine.Retention, err = time.ParseDuration(query.Get("retention"))
	if err != nil || r.engine.Retention < time.Minute {
		return fmt.Errorf("retention=%s: write a time of at least 1m, such as 1h", show(query.Get("retention")))
	}
	return nil
}

func (r *redisTarget) setMinReplicas(query url.Values) (err error) {
	if !query.Has("min-replicas") {
		return nil
	}
	r.engine.MinReplicas, err = strconv.Atoi(query.Get("min-replicas"))
	if err != nil || r.engine.MinReplicas < 0 {
		return fmt.Errorf("min-replicas=%s: write a number of replicas, such as 1", show(query.Get("min-replicas")))
	}
	return nil
}

// setTLS reads certificates. The name a server must prove is that of its address.
func (r *redisTarget) setTLS(u *url.URL, query url.Values) error {
	if query.Has("insecure") {
		return errors.New("there is no insecure: a connection that checks nobody protects from nobody; write ca=FILE with the certificate that signed the server's")
	}
	wanted, err := word(query, "tls", "on")
	if err != nil {
		return err
	}
	ca, cert, key := query.Get("ca"), query.Get("cert"), query.Get("key")
	if u.Scheme != "rediss" && !wanted {
		if ca != "" || cert != "" || key != "" {
			return errors.New("ca, cert and key need tls=on")
		}
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		if config.RootCAs, err = authorities(ca); err != nil {
			return err
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("cert and key go together; give both")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	r.client.TLSConfig, r.client.Sentinel.TLSConfig = config, config
	return nil
}

func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca: %s holds no certificate in PEM", show(file))
	}
	return pool, nil
}

// database reads the number of a database; an empty one is 0.
func database(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, "/"))
	if err != nil || n < 0 {
		return 0, errors.New("the database is not a number; write redis://host:port/0")
	}
	return n, nil
}

func unixDialer(path string) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, _ string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", path)
	}
}
