package filelock

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// maxEncoded is the longest encoded name in bytes; file systems allow 255.
const maxEncoded = 200

// encode returns the directory name of a name. Different names have different directories, even on
// a file system that ignores case: escapes use lower-case digits, and upper-case letters are
// escaped. A name that is too long ends in "~" and its hash; no other encoding contains "~".
func encode(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	if b.Len() <= maxEncoded {
		return b.String()
	}
	return fmt.Sprintf("%s~%x", b.String()[:maxEncoded/2], sha256.Sum256([]byte(name)))
}

// plain reports whether c is not escaped.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}
