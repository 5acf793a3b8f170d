package filelock

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// maxEncoded is the longest encoded name in bytes; file systems allow 255.
const maxEncoded = 200

// encode turns a name into the name of its directory. Two names never meet, not
// even where the file system ignores case, so escapes use lower-case digits and
// upper-case letters are escaped. A name that gets too long ends in its hash
// behind a "~", which no other encoding contains.
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

// plain reports whether c stands for itself anywhere in a name.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}
