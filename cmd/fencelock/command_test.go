//go:build unix

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestDirectoryOfOneUserIsTold(t *testing.T) {
	env := func(name string) string { return map[string]string{"HOME": "/home/u"}[name] }
	for url, want := range map[string]string{"": "/home/u/.local/state/fencelock", "file:///srv/locks": ""} {
		var out bytes.Buffer
		a := &app{url: url, stderr: &out}
		sayDirectory(a, 1000, env)
		if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q", url, got)
		}
	}
}
