package filelock_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
)

// recordFiles returns the files of all records below a directory.
func recordFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, ".records", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDamagedRecord: a record that is not whole is an error that names the file, and
// no record at all is none.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	r := filelock.New(dir, nil).Records()
	version, err := r.Swap(t.Context(), "a", []byte("value"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	files := recordFiles(t, dir)
	if len(files) != 1 {
		t.Fatalf("files %q", files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of a record: %v, %v", info, err)
	}
	for _, content := range []string{"", "no record", version + " 0 9\na", "\x00"} {
		if err := os.WriteFile(files[0], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, errGet := r.Get(t.Context(), "a")
		_, errSwap := r.Swap(t.Context(), "a", nil, "", 0)
		_, errList := r.List(t.Context(), "")
		for _, err := range []error{errGet, errSwap, errList} {
			if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), files[0]) {
				t.Errorf("%q: got %v, want ErrUnavailable that names %s", content, err, files[0])
			}
		}
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Swap(t.Context(), "a", nil, "", 0); err != nil {
		t.Error(err)
	}
}

// TestDamagedRecordElsewhere: a listing reads the records with its prefix and no others.
func TestDamagedRecordElsewhere(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	r := filelock.New(dir, nil).Records()
	long := strings.Repeat("/", 300) // of which the name of the file has a part
	for _, key := range []string{"a", "a.b", "%", long + "a", long + "b"} {
		if _, err := r.Swap(t.Context(), key, nil, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 64 { // in all directories
		if _, err := r.Swap(t.Context(), fmt.Sprint("b", i), nil, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range recordFiles(t, dir) {
		if strings.HasPrefix(filepath.Base(file), "r.b") {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for prefix, want := range map[string]int{"a": 2, "a.": 1, "%": 1, long: 2, long + "a": 1, "/": 2, "c": 0} {
		if list, err := r.List(t.Context(), prefix); err != nil || len(list) != want {
			t.Errorf("%.9q: %d records, %v; want %d", prefix, len(list), err, want)
		}
	}
	if _, err := r.List(t.Context(), "b"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("the records that are damaged: got %v, want ErrUnavailable", err)
	}
}

// TestRecordHalfMade: what a process that died has left of a swap is no record, and in
// nobody's way, whatever keys there are.
func TestRecordHalfMade(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	r := filelock.New(dir, nil).Records()
	if _, err := r.Swap(t.Context(), "a", []byte("value"), "", 0); err != nil {
		t.Fatal(err)
	}
	file := recordFiles(t, dir)[0]
	half := filepath.Join(filepath.Dir(file), "new."+filepath.Base(file))
	if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := r.List(t.Context(), ""); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	rec, err := r.Get(t.Context(), "a")
	if err == nil {
		_, err = r.Swap(t.Context(), "a", []byte("next"), rec.Version, 0)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was half made is still there: %v", err)
	}
}

// TestRecordsAfterTheirDirectoryIsGone: somebody has removed the directory of the engine, as
// what cleans /tmp does. It is made again, as it is for locks.
func TestRecordsAfterTheirDirectoryIsGone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "above", "locks")
	r := filelock.New(dir, nil).Records()
	for _, gone := range []string{dir, filepath.Dir(dir), filepath.Join(dir, ".records")} {
		if _, err := r.Swap(t.Context(), "a", nil, "", 0); err != nil {
			t.Errorf("before %s is gone: %v", gone, err)
		}
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
		if rec, err := r.Get(t.Context(), "a"); err != nil || rec.Version != "" {
			t.Errorf("when %s is gone: %+v, %v", gone, rec, err)
		}
	}
	if _, err := r.Swap(t.Context(), "a", nil, "", 0); err != nil {
		t.Error(err)
	}
}

// TestExpiredRecordsAreRemoved: when a record is made, those near it that have expired
// go, and no others.
func TestExpiredRecordsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	old := filelock.New(dir, nil).Records()
	const kept, expired = 2, 5
	for i := range kept + expired {
		ttl := time.Hour
		if i >= kept {
			ttl = 1
		}
		if _, err := old.Swap(t.Context(), fmt.Sprint("old ", i), nil, "", ttl); err != nil {
			t.Fatal(err)
		}
	}
	young := filelock.New(dir, nil).Records() // it has not looked within the hour
	for made := 0; len(recordFiles(t, dir)) != kept+made; made++ {
		if made == 200 {
			t.Fatalf("%d files, want %d", len(recordFiles(t, dir)), kept+made)
		}
		if _, err := young.Swap(t.Context(), fmt.Sprint("young ", made), nil, "", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := young.List(t.Context(), "old "); len(list) != kept || err != nil {
		t.Errorf("of %d old records that last %d are listed, %v", kept, len(list), err)
	}
}
