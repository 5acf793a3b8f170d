package awslogin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestSignature: the three examples in Amazon's documentation of signatures for S3.
func TestSignature(t *testing.T) {
	k := keys{id: "AKIAIOSFODNN7EXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, c := range []struct {
		method, path string
		query        url.Values
		header       http.Header
		hash, want   string
	}{
		{"GET", "test.txt", nil, http.Header{"Range": {"bytes=0-9"}}, empty, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"PUT", "test$file.text", nil, http.Header{"Date": {"Fri, 24 May 2013 00:00:00 GMT"}, "X-Amz-Storage-Class": {"REDUCED_REDUNDANCY"}},
			"44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		{"GET", "", url.Values{"max-keys": {"2"}, "prefix": {"J"}}, http.Header{}, empty, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r, err := http.NewRequest(c.method, "https://examplebucket.s3.amazonaws.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path, r.URL.RawPath = "/"+c.path, "/"+Escape(c.path, "/")
		r.URL.RawQuery = Query(c.query)
		r.Header = c.header
		k.sign(r, c.hash, "s3", "us-east-1", at)
		if _, got, _ := strings.Cut(r.Header.Get("Authorization"), "Signature="); got != c.want {
			t.Errorf("%s %s: the signature is %s, want %s", c.method, c.path, got, c.want)
		}
	}
}

// sources unsets the variables that name a login, and starts a server that answers as STS, a
// container's agent and an instance do. It returns its URL and a counter of its logins.
func sources(t *testing.T, life time.Duration) (address string, logins *int) {
	t.Helper()
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	logins = new(int)
	role := func(w http.ResponseWriter, id string) {
		*logins++
		end := time.Now().Add(life).UTC().Format(time.RFC3339)
		_, _ = io.WriteString(w, `{"AccessKeyId":"`+id+`","SecretAccessKey":"s","Token":"t","Expiration":"`+end+`"}`)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "session") })
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/{role...}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session":
			w.WriteHeader(http.StatusUnauthorized)
		case r.PathValue("role") == "":
			_, _ = io.WriteString(w, "worker\n")
		default:
			role(w, "of "+r.PathValue("role"))
		}
	})
	mux.HandleFunc("GET /container", func(w http.ResponseWriter, r *http.Request) { role(w, "of "+r.Header.Get("Authorization")) })
	mux.HandleFunc("POST /sts", func(w http.ResponseWriter, r *http.Request) {
		*logins++
		_, _ = io.WriteString(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>`+
			`<AccessKeyId>of `+r.FormValue("RoleArn")+" "+r.FormValue("WebIdentityToken")+`</AccessKeyId><SecretAccessKey>s</SecretAccessKey>`+
			`<SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	return server.URL, logins
}

// write creates a file with a text.
func write(t *testing.T, text string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSources: each source of a login, the first of them before the next.
func TestSources(t *testing.T) {
	address, _ := sources(t, time.Hour)
	is := func(want string) {
		t.Helper()
		if k, err := New(http.DefaultClient, "s3", Region("")).current(t.Context()); k.id != want || err != nil {
			t.Errorf("the login is %q (%v), want %q", k.id, err, want)
		}
	}
	is("of worker")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address+"/container")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write(t, "pod\n"))
	is("of pod")
	t.Setenv("AWS_ENDPOINT_URL_STS", address+"/sts")
	t.Setenv("AWS_ROLE_ARN", "arn")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write(t, "token\n"))
	is("of arn token")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", write(t, "[default]\naws_access_key_id = file\naws_secret_access_key=s\n[other]\naws_access_key_id=wrong\n"))
	is("file")
	t.Setenv("AWS_ACCESS_KEY_ID", "variable")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	is("variable")
}

// TestTemporaryKeys: keys are renewed some minutes before they expire. Requests use the old ones
// until then, and do not wait for a source that stalls.
func TestTemporaryKeys(t *testing.T) {
	address, _ := sources(t, early-time.Minute)
	stalled, answered := make(chan struct{}), make(chan struct{})
	var asked atomic.Int32
	stalls := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 { // the first login
			close(stalled)
			<-answered
		}
		http.Redirect(w, r, address+"/container", http.StatusFound)
	}))
	defer stalls.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", stalls.URL)
	l := New(http.DefaultClient, "s3", "")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	current := func() {
		t.Helper()
		if k, err := l.current(ctx); err != nil || k.id != "of " || ctx.Err() != nil {
			t.Errorf("while the old keys are valid: %q, %v, %v", k.id, err, ctx.Err())
		}
	}
	current()
	l.next = time.Now()
	current() // starts a renewal
	<-stalled
	current()
	close(answered)
	l.slot <- struct{}{}
	l.keys.expires = time.Now()
	<-l.slot
	cancel()
	if k, err := l.current(ctx); err == nil && !time.Now().Before(k.expires) {
		t.Error("expired keys are used")
	}
}

// TestRenewedFile: the keys of the file are read again. The old ones stay while it is incomplete.
func TestRenewedFile(t *testing.T) {
	_, _ = sources(t, time.Hour)
	file := write(t, "[default]\naws_access_key_id=first\naws_secret_access_key=s\n")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	l := New(http.DefaultClient, "s3", "")
	is := func(want string) {
		t.Helper()
		if k, err := l.current(t.Context()); k.id != want || err != nil {
			t.Errorf("the login is %q (%v), want %q", k.id, err, want)
		}
	}
	is("first")
	for _, c := range []struct{ text, want string }{
		{"", "first"}, {"[default]\naws_access_key_id=second\n", "first"},
		{"[default]\naws_access_key_id=second\naws_secret_access_key=s\n", "second"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		l.renew(l.source)
		is(c.want)
	}
	if left := time.Until(l.next); left > reread {
		t.Errorf("the file is read again after %v, want %v", left, reread)
	}
}

// TestNone: the error of a host without any login says what to do.
func TestNone(t *testing.T) {
	_, _ = sources(t, 0)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
	if _, err := New(http.DefaultClient, "s3", "").current(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("got %v", err)
	}
}

// TestSecretAddress: errors do not repeat the query of an address, whatever goes wrong.
func TestSecretAddress(t *testing.T) {
	address, _ := sources(t, time.Hour)
	for what, address := range map[string]string{
		"refused":   address + "/none",
		"no answer": "http://user:hunter2@127.0.0.1:1/none",
		"no URL":    "http://127.0.0.1:port/none",
		"no scheme": "127.0.0.1/none",
	} {
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address+"?token=hunter2#hunter2")
		_, err := New(http.DefaultClient, "s3", "").current(t.Context())
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSilentSource: while a source does not answer one request, another one ends with its own context.
func TestSilentSource(t *testing.T) {
	asked, end := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-end
	}))
	t.Cleanup(s.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", s.URL)
	login := New(http.DefaultClient, "s3", "us-east-1")
	first := make(chan error, 1)
	go func() { // ends with the answer
		_, err := login.current(t.Context())
		first <- err
	}()
	<-asked
	brief, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := login.current(brief); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
	close(end)
	if err := <-first; err == nil {
		t.Error("an empty answer has no keys")
	}
}
