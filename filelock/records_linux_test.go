package filelock_test

import (
	"fmt"
	"hash/fnv"
	"os"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/filelock"
)

// TestListWhileRecordsChange: a listing shows all records, however often they are replaced
// meanwhile. In memory, on tmpfs, a name that is replaced moves to the end of its directory.
func TestListWhileRecordsChange(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/dev/shm", "filelock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := filelock.New(dir, nil).Records()
	const records = 1000
	versions := map[string]string{} // of keys that are kept in one directory
	for i := 0; len(versions) < records; i++ {
		key, h := fmt.Sprint("k", i), fnv.New32a()
		if h.Write([]byte(key)); h.Sum32()%16 != 0 {
			continue
		}
		if versions[key], err = r.Swap(t.Context(), key, nil, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	var over atomic.Bool
	done := make(chan struct{})
	go func() { // ends when all listings are made
		defer close(done)
		writer := filelock.New(dir, nil).Records()
		for !over.Load() {
			for key, version := range versions {
				next, err := writer.Swap(t.Context(), key, nil, version, 0)
				if err != nil {
					t.Error(err)
					return
				}
				versions[key] = next
			}
		}
	}()
	for range 20 {
		list, err := r.List(t.Context(), "")
		if err != nil || len(list) != records {
			t.Errorf("%d of %d records are listed, %v", len(list), records, err)
			break
		}
	}
	over.Store(true)
	<-done
}
