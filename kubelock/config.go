package kubelock

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Config holds the settings of Records.
type Config struct {
	// Namespace is the namespace of the objects. Empty means that of the pod.
	Namespace string

	// Server is the URL of the API server. Empty means that of the cluster in which this process
	// runs, with the service account of its pod.
	Server string

	// Token returns the bearer token of a request. Nil means none if Server is set: then the Client
	// authenticates, such as with a certificate.
	Token func() (string, error)

	// CAFile has the certificates of authorities that the server's certificate may be from, in PEM.
	// Empty means those of this host if Server is set. It is not used with a Client.
	CAFile string

	// Client sends the requests. Nil means one that tests idle connections, so that it notices a
	// server that has vanished. Redirects are not followed: the request that follows the one of a
	// write would be a read.
	Client *http.Client

	// Prefix is the prefix of the keys of locks, as in recordlock.Config.
	Prefix string

	// Timeout limits each call. 0 means 5 seconds.
	Timeout time.Duration
}

// account is where a pod finds its service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// TokenFile returns a [Config.Token] that reads a file for each request, since tokens are rotated.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	}
}

// New returns the records of a namespace; cfg may be nil. It reads files of the service account, and
// sends nothing.
func New(cfg *Config) (*Records, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); c.Server == "" && host != "" {
		c.Server = "https://" + net.JoinHostPort(host, os.Getenv("KUBERNETES_SERVICE_PORT"))
		c.CAFile = cmp.Or(c.CAFile, account+"ca.crt")
		if c.Token == nil {
			c.Token = TokenFile(account + "token")
		}
	}
	if c.Server == "" {
		return nil, fmt.Errorf("%w: this process does not run in a pod of Kubernetes: set the URL of the API server", driver.ErrConfig)
	}
	if c.Namespace == "" {
		text, err := os.ReadFile(account + "namespace")
		if err != nil {
			return nil, fmt.Errorf("%w: set the namespace: %w", driver.ErrConfig, err)
		}
		c.Namespace = strings.TrimSpace(string(text))
	}
	if c.Client == nil {
		client, err := newClient(c.CAFile)
		if err != nil {
			return nil, err
		}
		c.Client = client
	}
	r := &Records{prefix: cmp.Or(c.Prefix, "fencelock.lock/"), limit: cmp.Or(c.Timeout, 5*time.Second)}
	path := "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(c.Namespace) + "/leases"
	r.api = api{strings.TrimSuffix(c.Server, "/") + path, c.Token, *c.Client}
	// A PATCH would be redirected as a GET, whose answer looks like that of a write.
	r.api.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r.swept.Due(time.Minute) // processes that end soon do not sweep
	return r, nil
}

// newClient returns a client that trusts the certificates of a file. All requests share one
// connection of HTTP/2. If it is dead, requests would fail until TCP gives up, so it is tested.
func newClient(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 2 * time.Second, PingTimeout: 2 * time.Second}
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = errors.New(caFile + " has no certificates")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", driver.ErrConfig, err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return &http.Client{Transport: transport}, nil
}
