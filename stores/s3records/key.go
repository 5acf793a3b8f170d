package s3records

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/fencelock/fencelock/internal/awslogin"
)

// maxKey is the longest object key that has the whole key of its record. S3 limits object keys to
// 1,024 bytes and MinIO limits each segment to 255.
const maxKey = 200

// objectKey returns the object key of a record: its key, so that people can read it, with "=" and
// two hexadecimal digits for all but letters, digits, "-", "_" and "~". If that is long, it is its
// beginning and a hash.
func objectKey(key string) string {
	text := objectPrefix(key)
	if len(text) < maxKey {
		return text
	}
	hash := sha256.Sum256([]byte(key))
	return text + "==" + base64.RawURLEncoding.EncodeToString(hash[:])
}

// objectPrefix returns a prefix of the object keys of all records whose keys have a prefix. Some
// others may have it too.
func objectPrefix(prefix string) string {
	text := strings.NewReplacer("%", "=", ".", "=2E").Replace(awslogin.Escape(prefix, ""))
	return text[:min(len(text), maxKey)]
}
