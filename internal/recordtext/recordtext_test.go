package recordtext_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/recordtext"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 4, ""},
		{"disk", 4, "disk"},
		{"disks", 4, "disk"},
		{"größe", 3, "gr"},
		{"größe", 4, "grö"},
		{"größe", 5, "grö"},
		{"größe", 6, "größ"},
		{"größe", 7, "größe"},
		{"€", 2, ""},
		{"€", 0, ""},
		{"\xff\xfe!", 9, "\uFFFD!"},
		{"a\x80\x80\x80\x80\x80", 3, "a"},
		{strings.Repeat("€", 10), 11, "€€€"},
	} {
		if got := recordtext.Cut(c.text, c.most); got != c.want {
			t.Errorf("%q within %d bytes: %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
