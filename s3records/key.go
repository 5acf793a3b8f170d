package s3records

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Object keys are the records' keys, so that people can read them, except that an ASCII character
// other than a letter, a digit, "-" or "_" is "=" and two hexadecimal digits. S3 limits a key to
// 1,024 bytes and MinIO limits each path segment to 255: a key that is longer than maxEscaped when
// it is escaped is "==" and its base64, and a segment that has segment bytes ends with "=/".
const (
	maxEscaped = 800
	segment    = 200
)

// objectKey returns the object key of a record.
func objectKey(key string) string {
	escaped := escape(key)
	if len(escaped) > maxEscaped {
		escaped = encode(key)
	}
	return segments(escaped)
}

// objectPrefixes returns prefixes of the object keys of all records whose keys have a prefix. Some
// other object keys may have them too.
func objectPrefixes(prefix string) []string {
	for prefix != "" && !utf8.ValidString(prefix) {
		prefix = prefix[:len(prefix)-1]
	}
	return []string{segments(escape(prefix)), segments(encode(prefix[:len(prefix)/3*3]))}
}

func escape(key string) string {
	var b strings.Builder
	for _, r := range key {
		if r >= utf8.RuneSelf || r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "=%02X", r)
		}
	}
	return b.String()
}

// encode returns base64, so that the encoding of a prefix whose length is a multiple of three is a
// prefix of the encoding.
func encode(key string) string { return "==" + base64.RawURLEncoding.EncodeToString([]byte(key)) }

// isEncoded reports whether an object key or its prefix is base64.
func isEncoded(object string) bool { return strings.HasPrefix(object, "==") }

// segments divides a long key. It divides a key at the same places as its prefixes.
func segments(key string) string {
	var b strings.Builder
	size := 0
	for _, r := range key {
		if size >= segment {
			b.WriteString("=/")
			size = 0
		}
		n, _ := b.WriteRune(r)
		size += n
	}
	return b.String()
}

// recordKey is the inverse of objectKey. ok is false if no record has this object key.
func recordKey(object string) (key string, ok bool) {
	escaped := strings.ReplaceAll(object, "=/", "")
	if text, long := strings.CutPrefix(escaped, "=="); long {
		all, _ := base64.RawURLEncoding.DecodeString(text)
		key = string(all)
	} else {
		parts := strings.Split(escaped, "=")
		for i := 1; i < len(parts); i++ {
			if len(parts[i]) < 2 {
				return "", false
			}
			b, _ := strconv.ParseUint(parts[i][:2], 16, 7)
			parts[i] = string(rune(b)) + parts[i][2:]
		}
		key = strings.Join(parts, "")
	}
	return key, objectKey(key) == object
}
