package kuberecords

import (
	"cmp"
	"net/http"
	"time"

	"github.com/fencelock/fencelock/internal/kubeapi"
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

// TokenFile returns a [Config.Token] that reads a file for each request, since tokens are rotated.
func TokenFile(path string) func() (string, error) { return kubeapi.TokenFile(path) }

// New returns the records of a namespace; cfg may be nil. It reads files of the service account, and
// sends nothing.
func New(cfg *Config) (*Records, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	login, err := kubeapi.Login{Namespace: c.Namespace, Server: c.Server, Token: c.Token, CAFile: c.CAFile}.Complete()
	if err != nil {
		return nil, err
	}
	if c.Client == nil {
		transport, err := login.Transport()
		if err != nil {
			return nil, err
		}
		c.Client = &http.Client{Transport: transport}
	}
	r := &Records{api: kubeapi.New(login, c.Client), prefix: cmp.Or(c.Prefix, "fencelock.lock/"), limit: cmp.Or(c.Timeout, 5*time.Second)}
	r.swept.Due(time.Minute) // processes that end soon do not sweep
	return r, nil
}
