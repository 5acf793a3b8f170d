package kuberecords

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/kubeapi"
)

// A lock whose name can be the name of an object is the Lease object with this name. So it needs no
// setting to be the same lock as a leader election of client-go, and kubectl shows it under its
// name. The objects of other locks and of records have names that begin with "fencelock-", which
// such a lock cannot have.
const hashed = "fencelock-"

var (
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	unfit     = regexp.MustCompile(`[^a-z0-9]+`)
)

// plain reports whether a lock has an object with its own name.
func plain(lock string) bool {
	return len(lock) <= 253 && subdomain.MatchString(lock) && !strings.HasPrefix(lock, hashed)
}

// objectName returns the name of the object of a record. Other names show what they are about.
func (r *Records) objectName(key string) string {
	lock, isLock := strings.CutPrefix(key, r.prefix)
	if isLock && plain(lock) {
		return lock
	}
	sum := sha256.Sum256([]byte(key))
	about := unfit.ReplaceAllString("-"+strings.ToLower(lock), "-")
	return strings.TrimRight(hashed+hex.EncodeToString(sum[:10])+about[:min(len(about), 60)], "-")
}

// recordKey returns the key of the record of an object, or "" if it has none.
func (r *Records) recordKey(o *kubeapi.Object) string {
	key := o.Metadata.Annotations[keyNote]
	if key == "" && plain(o.Metadata.Name) {
		key = r.prefix + o.Metadata.Name
	}
	if driver.CheckName(key) != nil || r.objectName(key) != o.Metadata.Name {
		return ""
	}
	return key
}
