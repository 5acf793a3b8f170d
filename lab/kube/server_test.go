package kube

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// server is an etcd and a kube-apiserver with two accounts: an administrator, and one with the
// rights that docs/engines/kubernetes.md lists.
type server struct {
	test     testing.TB // with which the servers end
	dir, url string
	args     []string
	api      *exec.Cmd
	etcd     *etcd
	admin    *kubernetes.Clientset
}

// etcd is the store of one or several API servers.
type etcd struct {
	url  string
	args []string
	cmd  *exec.Cmd
}

const (
	adminToken = "token-of-the-administrator"
	locksToken = "token-of-the-locks"
)

// start starts the servers, which end with the test.
func start(t *testing.T) *server {
	t.Helper()
	bin := os.Getenv("KUBE_BIN")
	if bin == "" {
		t.Fatal("KUBE_BIN has no value: run make kube")
	}
	s := &server{test: t, dir: t.TempDir(), etcd: &etcd{url: "http://127.0.0.1:" + freePort(t)}}
	s.etcd.args = []string{
		filepath.Join(bin, "etcd"), "--data-dir", s.path("etcd"), "--listen-client-urls", s.etcd.url,
		"--advertise-client-urls", s.etcd.url, "--listen-peer-urls", "http://127.0.0.1:" + freePort(t), "--unsafe-no-fsync",
	}
	s.startEtcd(t)
	s.configure(t, bin)
	s.startAPI(t)
	s.grant(t)
	return s
}

// beside starts another API server on the same etcd.
func (s *server) beside(t *testing.T) *server {
	t.Helper()
	other := &server{test: s.test, dir: t.TempDir(), etcd: s.etcd}
	other.configure(t, filepath.Dir(s.args[0]))
	other.startAPI(t)
	return other
}

// startEtcd starts etcd, again if it has ended.
func (s *server) startEtcd(t testing.TB) {
	t.Helper()
	s.etcd.cmd = exec.Command(s.etcd.args[0], s.etcd.args[1:]...)
	s.launch(t, s.etcd.cmd)
}

// configure chooses the port and the accounts of the API server.
func (s *server) configure(t *testing.T, bin string) {
	t.Helper()
	s.write(t, "key", serviceKey(t))
	s.write(t, "tokens", []byte(adminToken+",admin,1,system:masters\n"+locksToken+",locks,2\n"))
	port := freePort(t)
	s.url = "https://127.0.0.1:" + port
	s.args = []string{
		filepath.Join(bin, "kube-apiserver"), "--etcd-servers", s.etcd.url, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--secure-port", port, "--cert-dir", s.path("certs"), "--token-auth-file", s.path("tokens"), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://fencelock.example", "--service-account-key-file", s.path("key"),
		"--service-account-signing-key-file", s.path("key"), "--service-cluster-ip-range", "10.0.0.0/24",
		"--endpoint-reconciler-type", "none", "--disable-admission-plugins", "ServiceAccount",
	}
}

func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *server) write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(s.path(name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// launch starts a program, which ends with the test of the server.
func (s *server) launch(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	log := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.test.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if s.test.Failed() {
			s.test.Logf("%s:\n%s", filepath.Base(cmd.Path), log.Bytes()[max(0, log.Len()-2000):])
		}
	})
}

// startAPI starts kube-apiserver and waits until it is ready.
func (s *server) startAPI(t testing.TB) {
	t.Helper()
	s.api = exec.Command(s.args[0], s.args[1:]...)
	s.launch(t, s.api)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		err := s.ready()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("kube-apiserver is not ready: %v", err)
		}
	}
}

func (s *server) ready() (err error) {
	if s.admin == nil {
		if _, err := os.Stat(s.ca()); err != nil {
			return err
		}
		if s.admin, err = kubernetes.NewForConfig(s.login(adminToken)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return s.admin.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// ca is the file with the server's own certificate.
func (s *server) ca() string { return s.path("certs/apiserver.crt") }

// login returns the settings of client-go for an account.
func (s *server) login(token string) *rest.Config {
	return &rest.Config{Host: s.url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: s.ca()}, QPS: -1}
}

// grant gives the account of the locks its rights.
func (s *server) grant(t *testing.T) {
	t.Helper()
	_, err := s.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbac.ClusterRole{
		ObjectMeta: meta.ObjectMeta{Name: "fencelock"},
		Rules: []rbac.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete", "update"}, // client-go updates
		}},
	}, meta.CreateOptions{})
	if err == nil {
		_, err = s.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbac.ClusterRoleBinding{
			ObjectMeta: meta.ObjectMeta{Name: "fencelock"},
			RoleRef:    rbac.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "fencelock"},
			Subjects:   []rbac.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "locks"}},
		}, meta.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// namespace creates a namespace.
func (s *server) namespace(t testing.TB) string {
	t.Helper()
	ns, err := s.admin.CoreV1().Namespaces().Create(context.Background(), &core.Namespace{ObjectMeta: meta.ObjectMeta{GenerateName: "locks-"}}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// restart kills kube-apiserver and starts it again.
func (s *server) restart(t testing.TB) {
	t.Helper()
	kill(s.api)
	s.startAPI(t)
}

// kill ends a server as kill -9 does.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its error is the kill
}

// freePort returns a port of the loopback interface that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// serviceKey returns a key for the tokens of service accounts, which kube-apiserver needs.
func serviceKey(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(fmt.Errorf("a key: %w", err))
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}
