package s3records

import (
	"cmp"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/bucket"
	"github.com/fencelock/fencelock/internal/cloudlogin"
)

// AzureConfig holds the settings of records in Azure Blob Storage.
type AzureConfig struct {
	// Endpoint is the URL of another server than https://ACCOUNT.blob.core.windows.net, with the
	// account in its path if it needs that.
	Endpoint string

	// Prefix is put before the names of all blobs. It may contain slashes. No other blobs may have it.
	Prefix string

	// Key is a key of the account. Empty means AZURE_STORAGE_KEY.
	Key string

	// Signature is a shared access signature of the container, a query with sv= and sig=. It is used if
	// there is no Key. Empty means AZURE_STORAGE_SAS_TOKEN. Without both, the login is that of the
	// process: AZURE_CLIENT_ID and AZURE_TENANT_ID with AZURE_FEDERATED_TOKEN_FILE or
	// AZURE_CLIENT_SECRET, the identity of the app service, or that of the instance.
	Signature string

	// Timeout limits each call, as Config.Timeout does. 0 means 5 seconds.
	Timeout time.Duration

	// Client sends the requests. It must not repeat a PUT. Nil means a client of its own.
	Client *http.Client

	// Sign signs a request instead, whose body has this SHA-256 hash, in hexadecimal digits.
	Sign func(r *http.Request, hash string) error
}

// NewAzure returns the records of a container of Azure Blob Storage. It does no I/O; the first call
// reports wrong settings. [Records.Init] checks the container, which must exist.
func NewAzure(account, container string, cfg *AzureConfig) *Records {
	if cfg == nil {
		cfg = &AzureConfig{}
	}
	client, sign := clientOf(cfg.Client), cfg.Sign
	key := strings.TrimSpace(cmp.Or(cfg.Key, os.Getenv("AZURE_STORAGE_KEY"))) // a line from a file ends with a newline
	signature := strings.TrimSpace(cmp.Or(cfg.Signature, os.Getenv("AZURE_STORAGE_SAS_TOKEN")))
	switch {
	case sign != nil:
	case cfg.Key == "" && cfg.Signature != "" || key == "" && signature != "":
		sign = cloudlogin.SharedAccess(signature)
	case key != "":
		sign = cloudlogin.SharedKey(account, key)
	default:
		sign = cloudlogin.Azure(client).Sign
	}
	return open(cfg.Timeout, bucket.Config{
		Dialect: bucket.Azure(), Name: container, Endpoint: cmp.Or(cfg.Endpoint, "https://"+account+".blob.core.windows.net"), Prefix: cfg.Prefix,
		Client: client, Sign: sign,
	})
}

// GoogleConfig holds the settings of records in Google Cloud Storage.
type GoogleConfig struct {
	// Endpoint is the URL of another server than https://storage.googleapis.com. It must have the XML
	// interface.
	Endpoint string

	// Prefix is put before the names of all objects. It may contain slashes. No other objects may have
	// it.
	Prefix string

	// Timeout limits each call, as Config.Timeout does. 0 means 5 seconds.
	Timeout time.Duration

	// Client sends the requests. It must not repeat a PUT. Nil means a client of its own.
	Client *http.Client

	// Sign signs a request whose body has this SHA-256 hash, in hexadecimal digits. Nil means the login of
	// the process: workload identity federation with a file, as GOOGLE_APPLICATION_CREDENTIALS describes
	// it, or the service account of the instance or the pod.
	Sign func(r *http.Request, hash string) error
}

// NewGoogle returns the records of a bucket of Google Cloud Storage. It does no I/O; the first call
// reports wrong settings. [Records.Init] checks the bucket, which must exist. Google Cloud Storage admits
// about one write a second to an object, so a name can be acquired every two seconds.
func NewGoogle(name string, cfg *GoogleConfig) *Records {
	if cfg == nil {
		cfg = &GoogleConfig{}
	}
	client, sign := clientOf(cfg.Client), cfg.Sign
	if sign == nil {
		sign = cloudlogin.Google(client).Sign
	}
	return open(cfg.Timeout, bucket.Config{
		Dialect: bucket.Google(), Name: name, Endpoint: strings.TrimSuffix(cmp.Or(cfg.Endpoint, "https://storage.googleapis.com"), "/"), Prefix: cfg.Prefix,
		Client: client, Sign: sign,
	})
}

// clientOf returns a client, or one of its own if that is nil.
func clientOf(client *http.Client) *http.Client {
	if client == nil {
		client = &http.Client{Transport: bucket.Transport()}
	}
	return client
}
