package filelock_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// safe is what a directory may be called anywhere, ".." and hidden files aside.
var safe = regexp.MustCompile(`^[a-z0-9_%-][a-z0-9_%.~-]*$`)

func TestEncodedNamesNeverMeet(t *testing.T) {
	t.Parallel()
	names := rapid.OneOf(
		rapid.StringMatching(`[aA.%~/-]{1,6}`),
		rapid.StringN(1, 128, 512),
		rapid.Map(rapid.StringMatching(`[aA%]{1,4}`), func(s string) string { return strings.Repeat("long", 60) + s }),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		ea, eb := filelock.Encode(a), filelock.Encode(b)
		if (a == b) != strings.EqualFold(ea, eb) {
			t.Fatalf("%q and %q become %q and %q", a, b, ea, eb)
		}
		if !safe.MatchString(ea) || len(ea) > filelock.MaxEncoded {
			t.Fatalf("%q becomes %q", a, ea)
		}
	})
}

func TestNetworkFileSystemIsRefused(t *testing.T) {
	restore := filelock.SetFileSystem(func(string) (string, bool, error) { return "nfs", true, nil })
	defer restore() // of the whole package: not beside other tests
	_, err := filelock.New(tempDir(t), nil).Acquire(context.Background(), request("a"))
	if !errors.Is(err, driver.ErrUnsupported) || !oneLineWith(err, "nfs", "AllowNetwork") {
		t.Errorf("got %v", err)
	}
	verdict.Is(t, "Files: the directory is on NFS, SMB, 9p or FUSE", verdict.Refused, verdict.OfError(err))
	hold(t, filelock.New(tempDir(t), &filelock.Config{AllowNetwork: true}), "a")
}
