//go:build unix

package main

import (
	"bytes"
	"strings"
	"testing"
)

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
		dir, err := defaultDir(c.uid, func(name string) string { return env[name] })
		if dir != c.dir || (err == nil) != (c.dir != "") {
			t.Errorf("%+v: got %q, %v", c, dir, err)
		}
	}
}

func TestSuggest(t *testing.T) {
	for in, want := range map[string]string{
		"redsi": "redis", "fiel": "file", "rediss+cluster": "redis+cluster", "postgers": "postgres",
		"https": "", "m": "", "x": "",
	} {
		_, got, _ := strings.Cut(unknownScheme(in).Error(), "did you mean ")
		got, _, _ = strings.Cut(got, "?")
		if got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

// A password never gets out, whatever is wrong with its URL.
func TestPasswordIsHidden(t *testing.T) {
	const secret = "s3cr3tw0rd"
	for _, format := range []string{
		"redis://u:%s@127.0.0.1:1", "redsi://u:%s@h/x y", "//u:%s@h", "u:%s@h", "file://u:%s@h/x", "file://u:%s@/x",
		"redis://:%s/%%zz@h", "redis+sentinel://127.0.0.1:1/m?sentinel-password=%s", "redis://:%%zz%s@h", "redis://u:a/%s@h:port", "redis+cluster://h,u:%s/x@h", "redis+sentinel://h1:1,h2,u:1%s/m@h", "redis+sentinel://u:%s/m@h1,h2", "mem://:%s@x",
		"postgres://u:%s@127.0.0.1:1/x", "postgres://u:%s/x@h", "postgres://u:%s@h:port/x", "postgres://u:%s@h/x#y", "postgres://u:%s@h/x?sslmode=no",
		"postgres://u:%s@h/x?pooler=no", "postgres://127.0.0.1:1/x?password=%s", "postgres://127.0.0.1:1/x?password=%s&sslmode=no", "postgresql://u:%s@127.0.0.1:1,127.0.0.1:2/x",
		"postgres://u:%%zz%s@h/x", "postgres://u:%s@h/x?connect_timeout=no", "redlock://:%s@h", "redlock://:%s/x@h1,h2,h3", "redlock://%s@h1,h2,h3",
		"redlock://:%s@h1,h2,h3?tls=no", "redlock://:a,b%s@h1:port,h2,h3", "x y://u:%s@h",
	} {
		raw := strings.NewReplacer("%s", secret, "%%", "%").Replace(format)
		_, _, err := openURL(t.Context(), raw)
		if err == nil {
			t.Errorf("%q was opened", raw)
		} else if text := err.Error(); strings.Contains(text, secret) || strings.Contains(text, "\n") {
			t.Errorf("%q: %s", raw, text)
		}
	}
}

func TestDirectoryOfOneUserIsTold(t *testing.T) {
	env := func(name string) string { return map[string]string{"HOME": "/home/u"}[name] }
	for url, want := range map[string]string{"": "/home/u/.local/state/fencelock", "file:///srv/locks": ""} {
		var out bytes.Buffer
		a := &app{url: url, stderr: &out}
		a.sayDirectory(1000, env)
		if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q", url, got)
		}
	}
}

func TestGroupInAFileURL(t *testing.T) {
	for raw, ok := range map[string]bool{"file:///srv/locks?group=staff": true, "file:///srv/locks?group=": false} {
		if _, _, err := openURL(t.Context(), raw); (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
