package filelock

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// recordsDir contains the records. Each is a file in one of several directories, whose directory
// lock serializes the changes of all records in it.
const recordsDir = ".records"

// recordDirs is the number of these directories; one hexadecimal digit names each.
const recordDirs = 16

// records implements driver.Records. It caches nothing, because other processes may change the
// files at any time.
type records struct {
	dir   *directory
	swept [recordDirs]retry.Period
}

// stored is the content of a record's file: a line with the version, the expiry time in
// microseconds since 1970 (0 for never) and the length of the key; then the key; then the value.
type stored struct {
	driver.Record
	expires int64
}

// format returns the content of the file. The key is included because the file name may be a hash
// of it, and List needs the key.
func (r stored) format() []byte {
	return fmt.Appendf(nil, "%s %d %d\n%s%s", r.Version, r.expires, len(r.Key), r.Key, r.Value)
}

// parseRecord is the inverse of format. ok is false for anything that format does not write.
func parseRecord(b []byte) (r stored, ok bool) {
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) != 3 {
		return stored{}, false
	}
	expires, err := strconv.ParseInt(words[1], 10, 64)
	length, err2 := strconv.Atoi(words[2])
	if err != nil || err2 != nil || length < 1 || length > len(rest) {
		return stored{}, false
	}
	r.Version, r.expires = words[0], expires
	r.Key, r.Value = string(rest[:length]), rest[length:]
	return r, true
}

// stands reports whether the record exists and has not expired at a time.
func (r stored) stands(now time.Time) bool {
	return r.Version != "" && (r.expires == 0 || now.UnixMicro() < r.expires)
}

// shard returns the directory for a key. With several directories, writers of different keys rarely
// wait for one another, and a sweep reads only one of them.
func (r *records) shard(key string) (g *nameLock, i int) {
	h := fnv.New32a()
	h.Write([]byte(key))
	i = int(h.Sum32() % recordDirs)
	return r.nameLock(i), i
}

// nameLock returns the nameLock of a directory of records, which has no lock name.
func (r *records) nameLock(i int) *nameLock {
	return r.dir.nameLockAt("", strconv.FormatInt(int64(i), 16), recordsDir)
}

// recordFile returns the name of a record's file. Temporary files have other names.
func recordFile(key string) string { return "r." + encode(key) }

// Get returns a record; see [driver.Records]. It needs no directory lock, because records are
// replaced atomically.
func (r *records) Get(ctx context.Context, key string) (driver.Record, error) {
	none := driver.Record{Key: key}
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	if err := r.dir.ready(ctx, false); err != nil {
		return driver.Record{}, err
	}
	g, _ := r.shard(key)
	err := g.open()
	defer g.close()
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	var rec stored
	if err == nil {
		rec, err = readStored(g.folder, recordFile(key))
	}
	if err != nil {
		return driver.Record{}, r.dir.unavailable(err)
	}
	if !rec.stands(time.Now()) {
		return none, nil
	}
	return rec.Record, nil
}

// readStored reads a record's file. If there is none, it returns an empty record.
func readStored(d *folder, base string) (stored, error) {
	b, err := d.read(base, 2*driver.MaxRecord) // records are never longer
	if errors.Is(err, fs.ErrNotExist) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, err
	}
	rec, ok := parseRecord(b)
	if !ok {
		return stored{}, fmt.Errorf("%w: %q %w: remove the file to delete the record", driver.ErrUnavailable, d.pathOf(base), errDamaged)
	}
	return rec, nil
}

// Swap replaces a record; see [driver.Records].
func (r *records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	if err := r.dir.ready(ctx, true); err != nil {
		return "", err
	}
	g, i := r.shard(key)
	if err := r.enter(ctx, g); err != nil {
		return "", err
	}
	defer g.leave()
	now := time.Now()
	old, err := readStored(g.folder, recordFile(key))
	switch {
	case err != nil:
		return "", r.dir.unavailable(err)
	case !old.stands(now):
		old = stored{}
	}
	if old.Version != version {
		return "", driver.ErrConflict
	}
	next := stored{Record: driver.Record{Key: key, Value: value, Version: rand.Text()}}
	if ttl > 0 { // rounded up, so that the record lives at least as long as requested
		next.expires = now.Add(ttl + time.Microsecond - 1).UnixMicro()
	}
	if err := g.writeNew(recordFile(key), next.format()); err != nil {
		return "", r.dir.unavailable(err)
	}
	if version == "" { // calls that add records also remove expired ones
		r.sweep(g, i, now)
	}
	return next.Version, nil
}

// enter takes the directory lock of a directory of records, and creates the directory if there is
// none.
func (r *records) enter(ctx context.Context, g *nameLock) error {
	err := g.enter(ctx, false, lockPatience)
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.makeDir(g); err == nil {
			err = g.enter(ctx, false, lockPatience)
		}
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: waiting to change a record: %w", driver.ErrUnavailable, err)
	}
	return r.dir.unavailable(err)
}

// makeDir creates a directory of records, durably, with all parents up to the engine's directory.
func (r *records) makeDir(g *nameLock) error {
	all := r.dir.nameLockAt("", recordsDir)
	for _, dir := range []*nameLock{all, g} {
		if err := dir.make(); err != nil {
			return err
		}
		up, err := r.dir.open(dir.above...)
		if err != nil {
			return err
		}
		err = up.sync()
		up.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep removes the expired records of a directory, unless that was done within the last hour. The
// caller has the directory lock. Records that cannot be removed stay.
func (r *records) sweep(g *nameLock, i int, now time.Time) {
	if !r.swept[i].Due(sweepAfter) {
		return
	}
	names, _ := g.names()
	for _, base := range names {
		rec, err := readStored(g.folder, base)
		if err == nil && rec.Version != "" && !rec.stands(now) {
			_ = g.remove(base)
		}
	}
}

// List returns the records whose keys have a prefix; see [driver.Records]. It reads the file names
// of all records.
func (r *records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	if err := r.dir.ready(ctx, false); err != nil {
		return nil, err
	}
	var list []driver.Record
	for i := range recordDirs {
		some, err := r.listShard(ctx, r.nameLock(i), prefix)
		if err != nil {
			return nil, r.dir.unavailable(err)
		}
		list = append(list, some...)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list, nil
}

// listShard is List for one directory. Each record is read at a slightly different time.
func (r *records) listShard(ctx context.Context, g *nameLock, prefix string) (list []driver.Record, err error) {
	names, err := readNames(ctx, g)
	if err == nil {
		err = g.open()
		defer g.close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The file names of all keys with the prefix start like this, however long the keys are. Those
	// of temporary files do not.
	begin := recordFile(prefix)
	begin = begin[:min(len(begin), len(recordFile(""))+maxEncoded/2)]
	now := time.Now()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(name, begin) {
			continue
		}
		rec, err := readStored(g.folder, name)
		if err != nil {
			return nil, err
		}
		if rec.stands(now) && strings.HasPrefix(rec.Key, prefix) {
			list = append(list, rec.Record)
		}
	}
	return list, nil
}

// readNames returns the names of the files in a directory. It reads them under the directory lock:
// on some file systems, such as tmpfs, a file that is replaced meanwhile changes its place, and
// could be missed.
func readNames(ctx context.Context, g *nameLock) (names []string, err error) {
	if err := g.enter(ctx, false, lockPatience); err != nil {
		return nil, err
	}
	defer g.leave()
	return g.names()
}

// Clock returns the time of the host; see [driver.Records].
func (r *records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return earliest, latest, err
	}
	now := time.Now().Round(0)
	return now, now, nil
}
