package kubeapi

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// A Login says where an API server is, and how to log in to it.
type Login struct {
	Namespace string                 // empty means that of the pod
	Server    string                 // a URL; empty means that of the cluster in which this process runs
	Token     func() (string, error) // nil means none if Server is set
	CAFile    string                 // empty means the authorities of this host if Server is set
}

// account is where a pod finds its service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// TokenFile returns a token that is read from a file for each request, since tokens are rotated.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	}
}

// Complete fills in what the pod of this process knows.
func (l Login) Complete() (Login, error) {
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); l.Server == "" && host != "" {
		l.Server = "https://" + net.JoinHostPort(host, os.Getenv("KUBERNETES_SERVICE_PORT"))
		l.CAFile = cmp.Or(l.CAFile, account+"ca.crt")
		if l.Token == nil {
			l.Token = TokenFile(account + "token")
		}
	}
	if l.Server == "" {
		return l, fmt.Errorf("%w: this process does not run in a pod of Kubernetes: set the URL of the API server", driver.ErrConfig)
	}
	if l.Namespace == "" {
		text, err := os.ReadFile(account + "namespace")
		if err != nil {
			return l, fmt.Errorf("%w: set the namespace: %w", driver.ErrConfig, err)
		}
		l.Namespace = strings.TrimSpace(string(text))
	}
	return l, nil
}

// Transport returns a transport that trusts the certificates of the file. All requests share one
// connection of HTTP/2. If it is dead, requests would fail until TCP gives up, so it is tested.
func (l Login) Transport() (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 2 * time.Second, PingTimeout: 2 * time.Second}
	if l.CAFile != "" {
		text, err := os.ReadFile(l.CAFile)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = errors.New(l.CAFile + " has no certificates")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", driver.ErrConfig, err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return transport, nil
}
