//go:build unix

package storetests_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/fencelock/fencelock/internal/freeze"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// envMember is set in the environment of a child that is a member of a cluster.
const envMember = "FENCELOCK_MEMBER"

// member is a server of a cluster, in a process of its own.
type member struct {
	Kind    string // etcd or nats
	Name    string
	Dir     string
	Port    int      // for clients
	Peer    int      // for other members
	Cluster []string // of all members: name=http://127.0.0.1:peer

	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

func (m *member) addr() string { return fmt.Sprintf("127.0.0.1:%d", m.Port) }

// cluster is one or several members, with data of their own.
type cluster struct {
	home    hosttest.Home
	members []*member
}

// tenant ends members that a test has left.
var tenant = hosttest.Tenant{Stop: `
for file in "$1"/*.pid; do
	pid=$(cat "$file" 2>/dev/null) && case $(ps -ww -o args= -p "$pid") in *"$1"*) kill -KILL "$pid" ;; esac
done`}

// startCluster starts n members of a kind.
func startCluster(t hosttest.TB, kind string, n int) *cluster {
	t.Helper()
	c := &cluster{home: hosttest.NewHome(t, tenant, kind)}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.kill()
		}
		c.home.Remove(t)
	})
	var peers []string
	for i := range n {
		m := &member{Kind: kind, Name: fmt.Sprint("m", i), Port: hosttest.FreePort(t), Peer: hosttest.FreePort(t)}
		m.Dir = filepath.Join(c.home.Dir, m.Name)
		peers = append(peers, fmt.Sprintf("%s=http://127.0.0.1:%d", m.Name, m.Peer))
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		m.Cluster = peers
		c.start(t, m)
	}
	return c
}

// start starts a member, again if it has ended.
func (c *cluster) start(t hosttest.TB, m *member) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	m.cmd = c.home.Command(exe, m.Dir) // the argument identifies it
	m.cmd.Env = append(m.cmd.Env, envMember+"="+string(config))
	m.gone = c.home.Run(t, m.cmd)
	if err := os.WriteFile(m.Dir+".pid", fmt.Append(nil, m.cmd.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
}

// kill ends a member as kill -9 does.
func (m *member) kill() {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill() // it may have ended
		<-m.gone
	}
}

func (m *member) freeze(t hosttest.TB) {
	t.Helper()
	if err := freeze.Process(m.cmd.Process); err != nil {
		t.Fatal(err)
	}
}

func (m *member) thaw(t hosttest.TB) {
	t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) restart(t hosttest.TB) {
	t.Helper()
	for _, m := range c.members {
		m.kill()
	}
	for _, m := range c.members {
		c.start(t, m)
	}
}

func (c *cluster) freeze(t hosttest.TB) {
	t.Helper()
	for _, m := range c.members {
		m.freeze(t)
	}
}

func (c *cluster) thaw(t hosttest.TB) {
	t.Helper()
	for _, m := range c.members {
		m.thaw(t)
	}
}

// addrs returns the addresses for clients.
func (c *cluster) addrs() (all []string) {
	for _, m := range c.members {
		all = append(all, m.addr())
	}
	return all
}

// eventually fails the test unless a condition becomes true.
func eventually(t hosttest.TB, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(hosttest.Patience); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, hosttest.Patience)
		}
	}
}

// natsDomain is the domain of JetStream. Clients need not name it.
const natsDomain = "test"

// serveMember runs the member that the environment describes, and returns if there is none.
func serveMember() {
	text := os.Getenv(envMember)
	if text == "" {
		return
	}
	m := &member{}
	err := json.Unmarshal([]byte(text), m)
	if err == nil && m.Kind == "etcd" {
		err = m.serveEtcd()
	} else if err == nil {
		err = m.serveNATS()
	}
	fmt.Fprintln(os.Stderr, "the member has ended:", err)
	os.Exit(1)
}

func (m *member) serveEtcd() error {
	local := func(port int) []url.URL {
		return []url.URL{{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}}
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = m.Name, m.Dir, strings.Join(m.Cluster, ",")
	c.ListenClientUrls, c.AdvertiseClientUrls = local(m.Port), local(m.Port)
	c.ListenPeerUrls, c.AdvertisePeerUrls = local(m.Peer), local(m.Peer)
	c.LogLevel = "error"
	c.UnsafeNoFsync = true // the data survive a crash of the process, and need not survive one of the host
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	return <-e.Err()
}

func (m *member) serveNATS() error {
	o := &server.Options{
		ServerName: m.Name, Host: "127.0.0.1", Port: m.Port, JetStream: true, StoreDir: m.Dir, NoSigs: true,
		JetStreamDomain: natsDomain,
	}
	if len(m.Cluster) > 1 {
		var routes []string
		for _, peer := range m.Cluster {
			_, where, _ := strings.Cut(peer, "=http://")
			routes = append(routes, "nats://"+where)
		}
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: m.Peer}
		o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown()
	return nil
}
