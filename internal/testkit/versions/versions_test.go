//go:build unix

// Package versions_test lets the command as it is and as it was share names.
package versions_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// before is the last commit with the first protocols of Redis, Redlock and PostgreSQL.
const before = "bf1180ef128a29ae4667117859ab29160f7afe58"

// TestTwoVersions: with FENCELOCK_SLOW set, the command of an older commit and this one
// share a name for a minute on each engine. No two hold it at once, or the older one is
// refused, and says why. It needs the history, which a shallow clone does not have.
func TestTwoVersions(t *testing.T) {
	if os.Getenv("FENCELOCK_SLOW") == "" {
		return // it builds the command twice
	}
	dir := t.TempDir()
	versions := map[string]string{"old": buildOld(t, dir), "new": build(t, "../../..", filepath.Join(dir, "new"))}
	for engine, start := range map[string]func(testing.TB) string{
		"files":    func(t testing.TB) string { return "file://" + t.TempDir() },
		"redis":    func(t testing.TB) string { return "redis://" + redistest.StartRedis(t).Addr() },
		"redlock":  startNodes,
		"postgres": func(t testing.TB) string { return pgtest.StartPostgres(t, "max_connections=200").DSN() },
	} {
		t.Run(engine, func(t *testing.T) {
			url := start(t)
			if engine == "redlock" {
				out, err := exec.Command(versions["old"], "init", "--yes", "--url", url).CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			share(t, url, versions)
		})
	}
}

// buildOld builds the command of the older commit.
func buildOld(t *testing.T, dir string) string {
	t.Helper()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("git -C ../../.. archive %s | tar -x -C %s", before, tree)
	if out, err := exec.Command("bash", "-o", "pipefail", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("the older version cannot be had; a shallow clone has no history (git fetch --unshallow): %v\n%s", err, out)
	}
	return build(t, tree, filepath.Join(dir, "old"))
}

func build(t *testing.T, tree, exe string) string {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", exe, "./cmd/fencelock")
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

func startNodes(t testing.TB) string {
	t.Helper()
	var addrs []string
	for range 3 {
		addrs = append(addrs, redistest.StartRedis(t).Addr())
	}
	return "redlock://" + strings.Join(addrs, ",")
}

// share has each version take the name again and again, in three places. A directory
// that a holder makes and removes shows whoever else is there.
func share(t *testing.T, url string, versions map[string]string) {
	t.Helper()
	dir := t.TempDir()
	inside, overlaps := filepath.Join(dir, "inside"), filepath.Join(dir, "overlaps")
	length := 60 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var mu sync.Mutex // guards turns and said
	turns, said := map[string]int{}, map[string]string{}
	var all sync.WaitGroup
	for version, exe := range versions {
		for range 3 {
			all.Go(func() {
				for ctx.Err() == nil {
					work := fmt.Sprintf("mkdir %s && sleep 0.02 && rmdir %s || echo %s >> %s", inside, inside, version, overlaps)
					cmd := exec.Command(exe, "run", "--url", url, "--ttl", "5s", "--wait", "20s", "shared", "--", "sh", "-c", work)
					out, err := cmd.CombinedOutput()
					mu.Lock()
					if err == nil {
						turns[version]++
					} else {
						said[version] = fmt.Sprintf("%v: %s", err, out)
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	if b, err := os.ReadFile(overlaps); err == nil {
		t.Errorf("%d times two held the name: %q", strings.Count(string(b), "\n"), b)
	}
	t.Logf("turns: %v; errors: %v", turns, said)
	if turns["new"] == 0 {
		t.Errorf("this version got nothing: %s", said["new"])
	}
	if turns["old"] == 0 && said["old"] == "" {
		t.Error("the older version got nothing, and said nothing")
	}
}
