package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

// An engine is a kind of servers on which the nemesis injects faults.
type engine struct{ name, pkg, test string }

// engines are those whose servers are installed or come from the module proxy. MinIO and Kubernetes take
// long to compile: "make minio" and "make kube" run their nemeses, and so does this command if
// FENCELOCK_MINIO or KUBE_BIN says where they are.
var engines = func() (all []engine) {
	for _, name := range []string{"files", "redis", "redlock", "postgres", "mariadb", "sentinel-quarantine", "cluster"} {
		all = append(all, engine{name, "./cmd/internal/nemesis", "^TestNemesis$/^" + name + "$"})
	}
	for _, name := range []string{"etcd", "nats"} {
		all = append(all, engine{name, "./lab/storetests", "^TestNemesis$/^" + name + "$"})
	}
	if os.Getenv("FENCELOCK_MINIO") != "" {
		all = append(all, engine{"minio", "./lab/minio", "^TestNemesis$"})
	}
	if os.Getenv("KUBE_BIN") != "" {
		all = append(all, engine{"kubernetes", "./lab/kube", "^TestNemesis$"})
	}
	return all
}()

// nemeses runs the nemesis on each engine, or on one, and keeps what the file has of the others.
func nemeses(f flags) (r evidence.Report, err error) {
	chosen := engines
	if f.engine != "" {
		i := slices.IndexFunc(engines, func(e engine) bool { return e.name == f.engine })
		if i < 0 {
			return r, fmt.Errorf("no engine %q", f.engine)
		}
		chosen = engines[i : i+1]
		old, err := evidence.Read(filepath.Join(evidence.Dir, "nemesis.json"))
		if err != nil {
			return r, err
		}
		for _, n := range old.Nemesis {
			if n.Engine != f.engine {
				r.Nemesis = append(r.Nemesis, n)
			}
		}
	}
	for _, e := range chosen {
		begun := time.Now()
		got, err := goTest(nil, e.pkg, e.test, "-v", "-args", "-nemesis.for="+f.length.String())
		if err != nil {
			return r, err
		}
		n := evidence.Nemesis{Engine: e.name, Seconds: int64(time.Since(begun).Seconds())}
		for _, line := range got.lines {
			addRun(&n, line)
		}
		if n.Acquisitions == 0 {
			return r, fmt.Errorf("the nemesis on %s reported no run", e.name)
		}
		fmt.Printf("%s: %d acquisitions, %d faults, %d violations\n", e.name, n.Acquisitions, n.Faults, n.Violations)
		r.Nemesis = append(r.Nemesis, n)
	}
	return r, nil
}

// ran is what a nemesis logs of a run, in which a violation fails the test.
var ran = regexp.MustCompile(`: (?:seed (\d+): )?(\d+) holds, (\d+) faults`)

// addRun adds a run if the line is the log of one.
func addRun(n *evidence.Nemesis, line string) {
	f := ran.FindStringSubmatch(line)
	if f == nil {
		return
	}
	if n.Seed == 0 {
		n.Seed, _ = strconv.ParseUint(f[1], 10, 64)
	}
	n.Acquisitions += number(f[2])
	n.Faults += number(f[3])
}

// fieldBefore returns the word of a line that stands before another one, or "".
func fieldBefore(line, word string) string {
	before := ""
	for field := range strings.FieldsSeq(line) {
		if field == word {
			return before
		}
		before = field
	}
	return ""
}
