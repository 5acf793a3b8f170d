package s3records_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/s3records"
)

// accountKey is a key of an account, as base64.
const accountKey = "c2VjcmV0"

// clouds open records on a server of each dialect.
var clouds = map[string]func(s *objecttest.Server) *s3records.Records{
	"azure": func(s *objecttest.Server) *s3records.Records {
		return s3records.NewAzure("account", "container", &s3records.AzureConfig{Endpoint: s.URL + "account", Prefix: "some where/", Key: accountKey})
	},
	"google": func(s *objecttest.Server) *s3records.Records {
		return s3records.NewGoogle("bucket", &s3records.GoogleConfig{Endpoint: s.URL, Prefix: "some where/", Sign: func(*http.Request, string) error { return nil }})
	},
}

// cloudWorld is world for a dialect.
type cloudWorld struct {
	*world
	open func(s *objecttest.Server) *s3records.Records
}

func (w *cloudWorld) Client(testing.TB) drivertest.Client {
	return examtest.Store{Engine: w.locks.Client(), Stored: w.open(w.server)}
}

func dialect(name string) func(*objecttest.Server) {
	return func(s *objecttest.Server) { s.Dialect, s.Page = name, 7 }
}

// TestClouds runs the cases of the conformance suite that are about records in the other dialects, and the
// check of Init.
func TestClouds(t *testing.T) {
	for name, open := range clouds {
		t.Run(name, func(t *testing.T) {
			examtest.Records(t, "record-", drivertest.Suite{World: func(t testing.TB) drivertest.World {
				return &cloudWorld{&world{server: objecttest.Start(t, dialect(name)), locks: memlock.New(nil)}, open}
			}})
			t.Run("Init", func(t *testing.T) {
				t.Parallel()
				s := objecttest.Start(t, dialect(name))
				for range 2 {
					if err := open(s).Init(t.Context()); err != nil {
						t.Error(err)
					}
				}
				lax := objecttest.Start(t, dialect(name), func(s *objecttest.Server) { s.Lax = true })
				if err := open(lax).Init(t.Context()); !errors.Is(err, s3records.ErrConditions) {
					t.Errorf("a store that ignores conditions: %v", err)
				}
				torn := objecttest.Start(t, dialect(name), func(s *objecttest.Server) { s.Torn = true })
				if err := open(torn).Init(t.Context()); !errors.Is(err, s3records.ErrConditions) {
					t.Errorf("a store whose conditions are not atomic: %v", err)
				}
			})
		})
	}
}

// TestPace: a store that admits one write a second to an object passes the check, and keeps locks.
func TestPace(t *testing.T) {
	t.Parallel()
	s := objecttest.Start(t, dialect("google"), func(s *objecttest.Server) { s.Pace = time.Second })
	r := clouds["google"](s)
	if err := r.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := recordlock.New(r, nil)
	defer func() { _ = e.Close() }()
	locks := fencelock.New(e, nil)
	var token int64
	for range 3 {
		l, err := locks.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if l.Token() <= token {
			t.Errorf("token %d after %d", l.Token(), token)
		}
		token = l.Token()
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
}

// TestAzureConflict: a write on the condition that there is no blob is refused at once if there is one. Azure
// answers 409 then, as it does while another write is running.
func TestAzureConflict(t *testing.T) {
	t.Parallel()
	s := objecttest.Start(t, dialect("azure"))
	r := clouds["azure"](s)
	if _, err := r.Swap(t.Context(), "key", nil, "", 0); err != nil {
		t.Fatal(err)
	}
	var puts atomic.Int64
	s.Intercept(func(_ http.ResponseWriter, r *http.Request, _ func()) bool {
		if r.Method == http.MethodPut {
			puts.Add(1)
		}
		return false
	})
	if _, err := r.Swap(t.Context(), "key", nil, "", 0); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("got %v", err)
	}
	if n := puts.Load(); n != 1 {
		t.Errorf("%d writes", n)
	}
}

// TestCloudErrors: what is wrong is said, without secrets.
func TestCloudErrors(t *testing.T) {
	t.Parallel()
	answers := map[string]struct {
		status     int
		code, want string
		kind       error
	}{
		"no container": {404, "ContainerNotFound", "create the container", driver.ErrConfig},
		"no bucket":    {404, "NoSuchBucket", "create the bucket", driver.ErrConfig},
		"wrong key":    {403, "AuthenticationFailed", "check the login", driver.ErrConfig},
		"no right":     {403, "AuthorizationPermissionMismatch", "the login needs", driver.ErrConfig},
		"busy":         {503, "ServerBusy", "ServerBusy", driver.ErrUnavailable},
		"too many":     {429, "SlowDown", "SlowDown", driver.ErrUnavailable},
	}
	for name, a := range answers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(a.status)
			fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", a.code)
		}))
		defer server.Close()
		for cloud, r := range map[string]*s3records.Records{
			"azure":  s3records.NewAzure("account", "container", &s3records.AzureConfig{Endpoint: server.URL, Signature: "sv=1&sig=s3cret", Timeout: time.Second}),
			"google": s3records.NewGoogle("bucket", &s3records.GoogleConfig{Endpoint: server.URL, Timeout: time.Second, Sign: func(*http.Request, string) error { return nil }}),
		} {
			_, err := r.Get(t.Context(), "key")
			if !errors.Is(err, a.kind) || !strings.Contains(err.Error(), a.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s on %s: %v", name, cloud, err)
			}
		}
	}
	r := s3records.NewAzure("account", "container", &s3records.AzureConfig{Endpoint: "http://127.0.0.1:1", Signature: "sig=s3cret", Timeout: time.Second})
	if _, err := r.Get(t.Context(), "key"); !errors.Is(err, driver.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("no server: %v", err)
	}
	r = s3records.NewAzure("account", "container", &s3records.AzureConfig{Key: "no base64!"})
	if _, err := r.Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a key that is no base64: %v", err)
	}
}

// TestTokens: the login comes from each of the sources, and is renewed.
func TestTokens(t *testing.T) {
	dir, err := os.MkdirTemp("", "fencelock-tokens-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token := rand.Text()
	var asked atomic.Int64
	logins := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_ = r.ParseForm()
		f := r.Form
		switch {
		case r.URL.Path == "/computeMetadata/v1/instance/service-accounts/default/token" && r.Header.Get("Metadata-Flavor") == "Google",
			r.URL.Path == "/metadata/identity/oauth2/token" && r.Header.Get("Metadata") == "true" && f.Get("resource") == "https://storage.azure.com/",
			r.URL.Path == "/service" && r.Header.Get("X-Identity-Header") == "header":
			fmt.Fprintf(w, `{"access_token": %q, "expires_in": "3600"}`, token)
		case r.URL.Path == "/tenant/oauth2/v2.0/token" && f.Get("client_id") == "id" && (f.Get("client_secret") == "s3cret" || f.Get("client_assertion") == "federated"):
			fmt.Fprintf(w, `{"access_token": %q, "expires_in": 3600}`, token)
		case r.URL.Path == "/sts" && f.Get("subject_token") == "federated" && f.Get("audience") == "pool":
			fmt.Fprintf(w, `{"access_token": %q, "expires_in": 3600}`, map[bool]string{true: "exchanged", false: token}[strings.HasSuffix(f.Get("scope"), "cloud-platform")])
		case r.URL.Path == "/impersonate" && r.Header.Get("Authorization") == "Bearer exchanged":
			fmt.Fprintf(w, `{"accessToken": %q, "expireTime": %q}`, token, time.Now().Add(time.Hour).Format(time.RFC3339))
		default:
			http.Error(w, "who are you?", http.StatusUnauthorized)
		}
	}))
	t.Cleanup(logins.Close)
	federated := file("token", "federated\n")
	external := `{"type": "external_account", "audience": "pool", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "` + logins.URL + `/sts", `
	azure := map[string]string{"AZURE_CLIENT_ID": "id", "AZURE_TENANT_ID": "tenant", "AZURE_AUTHORITY_HOST": logins.URL + "/"}
	for name, c := range map[string]struct {
		dialect string
		env     map[string]string
	}{
		"Azure, the instance":       {"azure", map[string]string{"AZURE_POD_IDENTITY_AUTHORITY_HOST": logins.URL}},
		"Azure, the app service":    {"azure", map[string]string{"IDENTITY_ENDPOINT": logins.URL + "/service", "IDENTITY_HEADER": "header"}},
		"Azure, a federated token":  {"azure", map[string]string{"AZURE_FEDERATED_TOKEN_FILE": federated}},
		"Azure, a secret":           {"azure", map[string]string{"AZURE_CLIENT_SECRET": "s3cret"}},
		"Google, the instance":      {"google", map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(logins.URL, "http://")}},
		"Google, a federated token": {"google", map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": file("plain", external+`"credential_source": {"file": "`+federated+`"}}`)}},
		"Google, an account": {"google", map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": file("account", external+
			`"service_account_impersonation_url": "`+logins.URL+`/impersonate", "credential_source": {"file": "`+file("json", `{"t": "federated"}`)+`", "format": {"type": "json", "subject_token_field_name": "t"}}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "Azure, a ") {
				for k, v := range azure {
					t.Setenv(k, v)
				}
			}
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			s := objecttest.Start(t, dialect(c.dialect), func(s *objecttest.Server) { s.Token = token })
			r := s3records.NewGoogle("bucket", &s3records.GoogleConfig{Endpoint: s.URL})
			if c.dialect == "azure" {
				r = s3records.NewAzure("account", "container", &s3records.AzureConfig{Endpoint: s.URL})
			}
			before := asked.Load()
			for range 3 {
				if _, err := r.Get(t.Context(), "key"); err != nil {
					t.Fatal(err)
				}
			}
			if n := asked.Load() - before; n > 2 {
				t.Errorf("%d requests for a token", n)
			}
		})
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file("key", `{"type": "service_account"}`))
	if _, err := s3records.NewGoogle("bucket", nil).Get(context.Background(), "key"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "external_account") {
		t.Errorf("another file: %v", err)
	}
}
