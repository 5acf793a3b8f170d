//go:build unix

package pgtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// tenant is PostgreSQL, or PgBouncer. The arguments of a server name its directory, so a
// number that has found a new owner is left alone.
var tenant = hosttest.Tenant{Users: []string{"postgres"}, Stop: `
for file in "$1"/data/postmaster.pid "$1"/pgbouncer.pid; do
	pid=$(head -n 1 "$file" 2>/dev/null) && test "$pid" -gt 1 || continue
	case $(ps -ww -o args= -p "$pid") in *"$1"*) ;; *) continue ;; esac
	kill -STOP "$pid"
	kill -KILL $(pgrep -P "$pid") "$pid"
	set -- "$1" $(sed -n 7p "$file")
	test -z "$3" || ipcrm -m "$3"
done`}

func newHome(t hosttest.TB, what string) hosttest.Home {
	t.Helper()
	for _, tool := range []string{"ps", "pgrep", "ipcrm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing; on Debian: apt-get install procps util-linux", tool)
		}
	}
	return hosttest.NewHome(t, tenant, what)
}

// template is a new cluster, made once: initdb takes ten times as long as a copy. It lasts as
// long as the test binary; its watcher removes it then.
var template struct {
	sync.Mutex // guards home, done
	home       hosttest.Home
	done       bool
}

// whole and bare are the clusters of the template. A bare one has only the database postgres: two
// thirds of the files of a new cluster are those of template0 and template1.
const whole, bare = "whole", "bare"

// copyTemplate makes a cluster in data, which lies in a home.
func copyTemplate(t hosttest.TB, which string, h hosttest.Home, data string) {
	t.Helper()
	template.Lock()
	defer template.Unlock()
	if !template.done {
		template.home = newHome(t, "template")
		initdb(t, template.home, filepath.Join(template.home.Dir, whole))
		makeBare(t, template.home)
		template.done = true
	}
	h.Must(t, h.Command("cp", "-Rp", filepath.Join(template.home.Dir, which), data))
}

// initdb makes a cluster with a system identifier of its own.
func initdb(t hosttest.TB, h hosttest.Home, data string) {
	t.Helper()
	h.Must(t, h.Command(pgProgram(t, "initdb"), "-D", data, "-U", "postgres", "--auth=trust",
		"--locale=C", "--encoding=UTF8", "--no-sync", "--wal-segsize=1"))
}

// makeBare copies the whole cluster and drops what others are made from.
func makeBare(t hosttest.TB, h hosttest.Home) {
	t.Helper()
	data := filepath.Join(h.Dir, bare)
	h.Must(t, h.Command("cp", "-Rp", filepath.Join(h.Dir, whole), data))
	cmd := h.Command(pgProgram(t, "postgres"), "--single", "-D", data, "-c", "exit_on_error=on", "postgres")
	cmd.Stdin = strings.NewReader("UPDATE pg_database SET datistemplate = false\nDROP DATABASE template0\nDROP DATABASE template1\n")
	h.Must(t, cmd)
}
