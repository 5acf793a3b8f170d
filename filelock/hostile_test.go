//go:build linux || darwin

package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
)

// stranger is the user that owns a hostile directory. Only root can be two users; another user
// who runs the tests owns the directory.
const stranger = 65534

// A victim is a directory beside that of the locks, which no client may touch.
type victim struct{ dir string }

func newVictim(t testing.TB, dir string) victim {
	t.Helper()
	v := victim{filepath.Join(dir, "victim")}
	sub := filepath.Join(v.dir, "sub")
	must(t, os.MkdirAll(sub, 0o700))
	for _, file := range []string{v.file(), filepath.Join(sub, "a"), filepath.Join(sub, "name"), filepath.Join(sub, "0")} {
		must(t, os.WriteFile(file, []byte("precious"), 0o640))
	}
	return v
}

func (v victim) file() string    { return filepath.Join(v.dir, "file") }
func (v victim) missing() string { return filepath.Join(v.dir, "missing") }
func (v victim) sub() string     { return filepath.Join(v.dir, "sub") }

// state lists all that a client could change.
func (v victim) state(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	must(t, filepath.WalkDir(v.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintln(&all, path, st.Mode, st.Uid, st.Gid, st.Size, st.Mtim)
		if path != v.file() { // that one may have a link, whose removal changes the change time
			fmt.Fprintln(&all, st.Ctim)
			return nil
		}
		b, err := os.ReadFile(path)
		fmt.Fprintln(&all, string(b))
		return err
	}))
	return all.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hostile are the things that somebody may put where a client expects a file or a directory.
var hostile = map[string]func(v victim, path string) error{
	"a link":                    func(v victim, path string) error { return os.Symlink(v.file(), path) },
	"a dangling link":           func(v victim, path string) error { return os.Symlink(v.missing(), path) },
	"a link to a directory":     func(v victim, path string) error { return os.Symlink(v.sub(), path) },
	"a relative link":           relativeLink,
	"a link to its own folder":  func(_ victim, path string) error { return os.Symlink(".", path) },
	"a link to itself":          func(_ victim, path string) error { return os.Symlink(filepath.Base(path), path) },
	"a hard link":               func(v victim, path string) error { return os.Link(v.file(), path) },
	"a FIFO":                    func(_ victim, path string) error { return unix.Mkfifo(path, 0o666) },
	"a socket":                  socket,
	"a device":                  func(_ victim, path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, 1<<8|3) },
	"a file of a terabyte":      hugeFile,
	"a directory":               func(_ victim, path string) error { return os.MkdirAll(filepath.Join(path, "sub"), 0o777) },
	"entries with 255 bytes":    longEntries,
	"an empty file":             func(_ victim, path string) error { return os.WriteFile(path, nil, 0o666) },
	"a directory without modes": func(_ victim, path string) error { return os.Mkdir(path, 0) },
}

func relativeLink(v victim, path string) error {
	to, err := filepath.Rel(filepath.Dir(path), v.sub())
	if err != nil {
		return err
	}
	return os.Symlink(to, path)
}

func socket(_ victim, path string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}

func hugeFile(_ victim, path string) error {
	if err := os.WriteFile(path, []byte("{}"), 0o666); err != nil {
		return err
	}
	return os.Truncate(path, 1<<40)
}

func longEntries(_ victim, path string) error {
	if err := os.Mkdir(path, 0o777); err != nil {
		return err
	}
	for _, c := range []string{"a", ".", "%", "0"} {
		if err := os.WriteFile(filepath.Join(path, strings.Repeat(c, 255)), nil, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// places are the paths below the directory of the locks that clients use.
func places() []string {
	h := fnv.New32a()
	h.Write([]byte("key"))
	shard := ".records/" + strconv.FormatInt(int64(h.Sum32()%16), 16)
	ticket := "a/" + strings.Repeat("0", 19)
	return []string{
		".used", ".used/a", ".records", shard, shard + "/r.key", shard + "/new.r.key", shard + "/r.keyed", ".floor", "new..floor", ".sweep", ".swept.x", ".new.x", "a",
		"a/lock", "a/token", "a/name", "a/not-before", "a/limit", "a/new.token", "a/new.name", "a/new.limit", "a/new.not-before", "a/new.x", "a/.new.x",
		ticket + "1.x.h.x", ticket + "1.s5w2.w.x", "a/bell.x",
	}
}

// TestHostileDirectory: nothing that the owner of the directory, or a member of its group, puts
// into it makes a client change anything outside, wait for it, or read without an end. All kinds at
// all places take half a minute of processor time, so only make slow runs them. Otherwise these are
// the kinds that have done harm, half of them in a directory of a group.
func TestHostileDirectory(t *testing.T) {
	t.Parallel()
	kinds := []string{"a dangling link", "a FIFO", "a file of a terabyte", "a hard link", "a link", "a link to a directory"}
	all := os.Getenv("FENCELOCK_SLOW") != ""
	if all {
		kinds = slices.Collect(maps.Keys(hostile))
	}
	for g, group := range []string{"", strconv.Itoa(os.Getgid())} {
		for i, place := range places() {
			for j, kind := range kinds {
				if !all && (g+i+j)%2 == 1 {
					continue
				}
				t.Run(strings.Join([]string{"group " + group, place, kind}, ","), func(t *testing.T) {
					t.Parallel()
					meetHostile(t, &filelock.Config{Group: group, BreakWait: 1}, place, kind)
				})
			}
		}
	}
}

func meetHostile(t *testing.T, cfg *filelock.Config, place, kind string) {
	dir := tempDir(t)
	must(t, os.Chmod(dir, 0o755))
	locks, v := filepath.Join(dir, "locks"), newVictim(t, dir)
	e := filelock.New(locks, cfg)
	use(t, e)
	must(t, os.RemoveAll(filepath.Join(locks, place)))
	if err := hostile[kind](v, filepath.Join(locks, place)); err != nil {
		t.Skip("this user cannot create it: ", err)
	}
	if os.Getuid() == 0 {
		give(t, locks, v)
	}
	before := v.state(t)
	client := filelock.New(locks, cfg)
	for verb, call := range verbs {
		done := make(chan error, 1)
		go func() { // ends with the call; otherwise the test fails
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			done <- call(ctx, client)
		}()
		err := await(t, done, verb)
		if now := v.state(t); now != before {
			t.Fatalf("%s changed what is outside from\n%sto\n%s", verb, before, now)
		}
		known := errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrUnavailable)
		switch {
		case err == nil, errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrNotHeld), errors.Is(err, errSeen):
		case !known || !oneLineWith(err, locks) || strings.Contains(err.Error(), "%!"):
			t.Errorf("%s: %v", verb, err)
		default:
			t.Logf("%s: %v", verb, err)
		}
	}
}

// give makes the directory of the locks that of another user.
func give(t *testing.T, locks string, v victim) {
	t.Helper()
	must(t, filepath.WalkDir(locks, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if err == nil && (st.Nlink == 1 || st.Mode&unix.S_IFMT == unix.S_IFDIR) { // not the file of the victim
			err = os.Lchown(path, stranger, -1)
		}
		return err
	}))
}

// use makes all files that a client makes.
func use(t testing.TB, e *filelock.Engine) {
	t.Helper()
	req := request("a")
	req.MinHold = time.Millisecond
	release(t, e, leaseOf("a", acquire(t, e, req)))
	if _, err := e.Records().Swap(context.Background(), "key", []byte("value"), "", time.Hour); err != nil {
		t.Fatal(err)
	}
	release(t, e, hold(t, e, "idle"))
	e.Sweep()
	release(t, e, leaseOf("a", acquire(t, e, request("a"))))
}

// errSeen ends a Watch.
var errSeen = errors.New("seen")

// verbs are the calls behind the commands: acquire, run, once, limit, jobs, ls, status, watch,
// break and resize. Sweep is a part of acquire.
var verbs = map[string]func(ctx context.Context, e *filelock.Engine) error{
	"acquire": func(ctx context.Context, e *filelock.Engine) error { return acquireAndRelease(ctx, e, request("a")) },
	"acquire with a minimum hold": func(ctx context.Context, e *filelock.Engine) error {
		req := request("a")
		req.MinHold = time.Millisecond
		return acquireAndRelease(ctx, e, req)
	},
	"acquire a new name": func(ctx context.Context, e *filelock.Engine) error {
		return acquireAndRelease(ctx, e, request("new"))
	},
	"acquire with a limit": func(ctx context.Context, e *filelock.Engine) error {
		req := request("a")
		req.Mode, req.Limit = driver.Shared, 2
		return acquireAndRelease(ctx, e, req)
	},
	"wait": func(ctx context.Context, e *filelock.Engine) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		req := request("a")
		req.Wait = true
		err := acquireAndRelease(ctx, e, req)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	},
	"list":   func(ctx context.Context, e *filelock.Engine) error { _, err := e.List(ctx, driver.Query{}); return err },
	"status": func(ctx context.Context, e *filelock.Engine) error { return status(ctx, e, "a") },
	"watch": func(ctx context.Context, e *filelock.Engine) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		err := e.Watch(ctx, driver.Query{}, func(driver.Event) error { return errSeen })
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	},
	"swap": func(ctx context.Context, e *filelock.Engine) error {
		_, err := e.Records().Swap(ctx, "key", []byte("other"), "", time.Hour)
		if errors.Is(err, driver.ErrConflict) {
			return nil
		}
		return err
	},
	"get":          func(ctx context.Context, e *filelock.Engine) error { _, err := e.Records().Get(ctx, "key"); return err },
	"list records": func(ctx context.Context, e *filelock.Engine) error { _, err := e.Records().List(ctx, ""); return err },
	"sweep":        func(_ context.Context, e *filelock.Engine) error { e.Sweep(); return nil },
	"resize":       func(ctx context.Context, e *filelock.Engine) error { return e.Resize(ctx, "a", 3) },
	"break":        func(ctx context.Context, e *filelock.Engine) error { _, err := e.Break(ctx, "a", "test"); return err },
}

func acquireAndRelease(ctx context.Context, e *filelock.Engine, req driver.Request) error {
	g, err := e.Acquire(ctx, req)
	if err != nil {
		return err
	}
	return e.Release(ctx, leaseOf(req.Name, g))
}

// status reads one name. What cannot be read is its trouble.
func status(ctx context.Context, e *filelock.Engine, name string) error {
	all, err := e.List(ctx, driver.Query{Prefix: name, Exact: true})
	if err == nil && len(all) > 0 {
		err = all[0].Trouble
	}
	return err
}

// TestDoctorInAHostileDirectory: Inspect makes and removes probe names.
func TestDoctorInAHostileDirectory(t *testing.T) {
	t.Parallel()
	for _, place := range []string{".used", ".records", ".floor", ".sweep"} {
		for _, kind := range []string{"a link", "a link to a directory", "a FIFO", "a file of a terabyte", "a directory"} {
			t.Run(place+","+kind, func(t *testing.T) {
				t.Parallel()
				dir := tempDir(t)
				locks, v := filepath.Join(dir, "locks"), newVictim(t, dir)
				use(t, filelock.New(locks, nil))
				must(t, os.RemoveAll(filepath.Join(locks, place)))
				must(t, hostile[kind](v, filepath.Join(locks, place)))
				before, done := v.state(t), make(chan error, 1)
				go func() { // ends with the call; otherwise the test fails
					_, err := filelock.New(locks, nil).Inspect(context.Background(), time.Minute)
					done <- err
				}()
				if err := await(t, done, "the findings"); err != nil {
					t.Log(err)
				}
				if now := v.state(t); now != before {
					t.Errorf("changed outside from\n%sto\n%s", before, now)
				}
			})
		}
	}
}

// TestRaceForAHostileDirectory replaces files by links to those of a victim, and back, while a
// client uses them: what is checked is what is used.
func TestRaceForAHostileDirectory(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	locks, v := filepath.Join(dir, "locks"), newVictim(t, dir)
	cfg := &filelock.Config{Group: strconv.Itoa(os.Getgid())}
	e := filelock.New(locks, cfg)
	use(t, e)
	before := v.state(t)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the test
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			path := filepath.Join(locks, []string{"a/token", "a/lock", ".used", ".records", "a/not-before", "a/name"}[i%6])
			aside := path + ".aside"
			_ = os.Rename(path, aside)
			switch i / 6 % 3 {
			case 0:
				_ = os.Link(v.file(), path)
			case 1:
				_ = os.Symlink(v.file(), path)
			case 2:
				_ = os.Symlink(v.sub(), path)
			}
			time.Sleep(time.Duration(i%7) * 100 * time.Microsecond)
			_ = syscall.Unlink(path)
			_ = os.Rename(aside, path)
			time.Sleep(time.Duration(i%5) * 100 * time.Microsecond)
		}
	}()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		for _, call := range verbs {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_ = call(ctx, filelock.New(locks, cfg))
			cancel()
		}
	}
	close(over)
	await(t, ended, "the end of the race")
	if now := v.state(t); now != before {
		t.Errorf("changed outside from\n%sto\n%s", before, now)
	}
}

// TestHardLinkThatIsRemovedOnceItIsOpen: the number of links of an open file may have changed since
// the file was opened, so that it looks like a file of the directory alone.
func TestHardLinkThatIsRemovedOnceItIsOpen(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"a/token", "a/lock", "a/not-before", "a/limit", ".sweep"} {
		for _, group := range []string{"", strconv.Itoa(os.Getgid())} {
			dir := tempDir(t)
			locks, v := filepath.Join(dir, "locks"), newVictim(t, dir)
			use(t, filelock.New(locks, &filelock.Config{Group: group}))
			path := filepath.Join(locks, place)
			e, before := filelock.New(locks, &filelock.Config{Group: group}), v.state(t)
			e.SetPass(func(what string) {
				there, err := os.Stat(path)
				file, fileErr := os.Stat(v.file())
				if what == "file" && err == nil && fileErr == nil && os.SameFile(there, file) {
					_ = os.Remove(path)
				}
			})
			for _, verb := range []string{"acquire", "acquire with a minimum hold", "resize", "list", "break", "sweep"} {
				_ = os.Remove(path)
				must(t, os.Link(v.file(), path))
				if err := verbs[verb](t.Context(), e); err != nil && !errors.Is(err, driver.ErrConfig) && !errors.Is(err, driver.ErrNotHeld) {
					t.Logf("%s: %v", verb, err)
				}
				if now := v.state(t); now != before {
					t.Fatalf("%s, group %q: %s changed what is outside from\n%sto\n%s", place, group, verb, before, now)
				}
			}
		}
	}
}
