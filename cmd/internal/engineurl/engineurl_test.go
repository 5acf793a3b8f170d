//go:build unix

package engineurl_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
)

// parse reads a URL as Open does.
func parse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := engineurl.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestBeginnings: completion offers what a URL of each scheme begins with.
func TestBeginnings(t *testing.T) {
	want := []string{
		"file:///", "mem:", "redis://", "rediss://", "redis+unix://", "redis+sentinel://", "redis+cluster://", "redlock://",
		"postgres://", "postgresql://", "postgres+rows://", "mysql://", "mariadb://", "s3://", "k8s://",
	}
	if got := engineurl.Beginnings(); !slices.Equal(got, want) {
		t.Errorf("offered %q, want %q", got, want)
	}
}

func TestUnknownScheme(t *testing.T) {
	_, _, err := engineurl.Open(t.Context(), "redsi://h", nil)
	const want = "redsi: unknown scheme; did you mean redis? (known: file, k8s, mariadb, mem, mysql, postgres, postgres+rows, postgresql, redis, redis+cluster, redis+sentinel, redis+unix, rediss, redlock, s3)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestStoreOfAnotherProgram: the error names the program that has the client.
func TestStoreOfAnotherProgram(t *testing.T) {
	for _, raw := range []string{"etcd://h1,h2:2379/locks", "nats://h", "azblob://account/container", "gs://bucket", "dynamodb://locks"} {
		_, _, err := engineurl.Open(t.Context(), raw, nil)
		hinted, ok := errors.AsType[*engineurl.HintError](err)
		scheme, _, _ := strings.Cut(raw, ":")
		want := scheme + ": this program has no client for it, fencelock-all has"
		if !ok || err.Error() != want || !strings.Contains(hinted.Hint, "go install github.com/fencelock/fencelock/cmd/fencelock-all@latest") {
			t.Errorf("%s: %v (%+v)", raw, err, hinted)
		}
	}
}

// TestHostWithoutScheme: a host and a port are not taken for a scheme.
func TestHostWithoutScheme(t *testing.T) {
	for raw, want := range map[string]string{
		"localhost:6379":    "localhost:6379: the URL has no scheme; write redis://localhost:6379 or postgres://localhost:6379",
		"db.example:5432/x": "db.example:5432/x: the URL has no scheme; write redis://db.example:5432/x or postgres://db.example:5432/x",
	} {
		if _, _, err := engineurl.Open(t.Context(), raw, nil); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

func TestOpenEngines(t *testing.T) {
	for raw, want := range map[string]string{
		"mem:":                "memory",
		"file:///tmp/no-such": "files",
		"redlock://h1,h2,h3":  "redlock", // Open does not connect to its nodes
	} {
		engine, closeEngine, err := engineurl.Open(t.Context(), raw, nil)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got := engine.Traits().Engine; got != want {
			t.Errorf("%s: an engine of %s, want %s", raw, got, want)
		}
		if err := closeEngine(); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestOutOfReach: if the server is unreachable, the error is ErrUnavailable with a hint, not that
// of a wrong URL.
func TestOutOfReach(t *testing.T) {
	for _, raw := range []string{"redis://127.0.0.1:1", "postgres://u@127.0.0.1:1/x?sslmode=disable"} {
		_, _, err := engineurl.Open(t.Context(), raw, nil)
		hinted, ok := errors.AsType[*engineurl.HintError](err)
		if !ok || !errors.Is(err, driver.ErrUnavailable) || hinted.Hint != "check --url or FENCELOCK_URL, and that the server is up" {
			t.Errorf("%s: %v (%+v)", raw, err, hinted)
		}
	}
}

// TestGivenUp: if the caller cancels the context, Open returns that error, not ErrUnavailable.
func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, raw := range []string{"redis://192.0.2.1", "postgres://u@192.0.2.1/x?sslmode=disable"} {
		if _, _, err := engineurl.Open(ctx, raw, nil); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"dial redis://u:p@h:1: refused": "dial redis://redacted@h:1: refused",
		"redis://h is not a cluster":    "redis://h is not a cluster",
		"redis://[user:password@]host":  "redis://[user:password@]host",
		"redis://:p@h":                  "redis://redacted@h",
		`"pg://h/?sslPassword=p&x=y": `: `"pg://h/?sslPassword=redacted&x=y": `,
		"k8s://n?token-file=f&token=t":  "k8s://n?token-file=f&token=redacted",
	} {
		if got := engineurl.Redact(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestDefaultDir(t *testing.T) {
	for _, c := range []struct {
		uid              int
		state, home, dir string
	}{
		{0, "/state", "/root", "/var/lib/fencelock"},
		{1, "/state", "/home/u", "/state/fencelock"},
		{1, "", "/home/u", "/home/u/.local/state/fencelock"},
		{1, "relative", "/home/u", "/home/u/.local/state/fencelock"},
		{1, "", "", ""},
	} {
		env := map[string]string{"XDG_STATE_HOME": c.state, "HOME": c.home}
		dir, err := engineurl.DefaultDir(c.uid, func(name string) string { return env[name] })
		if dir != c.dir || (err == nil) != (c.dir != "") {
			t.Errorf("%+v: got %q, %v", c, dir, err)
		}
	}
}

// TestPasswordIsHidden: no error contains the password, whatever is wrong with the URL.
func TestPasswordIsHidden(t *testing.T) {
	const secret = "s3cr3tw0rd"
	for _, format := range []string{
		"redis://u:%s@127.0.0.1:1", "redsi://u:%s@h/x y", "//u:%s@h", "u:%s@h", "file://u:%s@h/x", "file://u:%s@/x",
		"redis://:%s/%%zz@h", "redis+sentinel://127.0.0.1:1/m?sentinel-password=%s", "redis://:%%zz%s@h", "redis://u:a/%s@h:port", "redis+cluster://h,u:%s/x@h", "redis+sentinel://h1:1,h2,u:1%s/m@h", "redis+sentinel://u:%s/m@h1,h2", "mem://:%s@x",
		"postgres://u:%s@127.0.0.1:1/x", "postgres://u:%s/x@h", "postgres://u:%s@h:port/x", "postgres://u:%s@h/x#y", "postgres://u:%s@h/x?sslmode=no",
		"postgres://u:%s@h/x?pooler=no", "postgres://127.0.0.1:1/x?password=%s", "postgres://127.0.0.1:1/x?password=%s&sslmode=no", "postgresql://u:%s@127.0.0.1:1,127.0.0.1:2/x",
		"postgres://u:%%zz%s@h/x", "postgres://u:%s@h/x?connect_timeout=no", "redlock://:%s@h", "redlock://:%s/x@h1,h2,h3", "redlock://%s@h1,h2,h3",
		"s3://u:%s@bucket?region=x", "s3://:%s@bucket/x", "redlock://:%s@h1,h2,h3?tls=no", "redlock://:a,b%s@h1:port,h2,h3", "x y://u:%s@h",
	} {
		raw := strings.NewReplacer("%s", secret, "%%", "%").Replace(format)
		_, _, err := engineurl.Open(t.Context(), raw, nil)
		if err == nil {
			t.Errorf("%q was opened", raw)
		} else if text := err.Error(); strings.Contains(text, secret) || strings.Contains(text, "\n") {
			t.Errorf("%q: %s", raw, text)
		}
	}
}

func TestGroupInAFileURL(t *testing.T) {
	for raw, ok := range map[string]bool{"file:///srv/locks?group=staff": true, "file:///srv/locks?group=": false} {
		if _, _, err := engineurl.Open(t.Context(), raw, nil); (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestWrongAddresses: a wrong address in a parameter is refused before a request is sent, and a
// password in it is not repeated.
func TestWrongAddresses(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	for _, raw := range []string{
		"k8s://shop?server=https://user:hunter2@10.0.0.1", "k8s://shop?server=https://10.0.0.1?token=hunter2",
		"k8s://shop?server=ftp://10.0.0.1", "k8s://shop?server=https://:6443", "k8s://shop?server=", "k8s://shop?server=https://h:99999",
		"s3://b?endpoint=https://user:hunter2@h", "s3://b?endpoint=https://h:99999", "s3://b?endpoint=https://:9000",
		"s3://..?region=r", "s3://a..b?region=r", "s3://-?region=r",
		"s3://b?region=r@evil.example", "s3://b?region=r/x", "s3://b?region=R",
	} {
		_, _, err := engineurl.Open(t.Context(), raw, nil)
		if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error about the URL", raw, err)
		}
	}
}
