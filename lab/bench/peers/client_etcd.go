package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// etcdClient locks with a session for each acquisition, so that each has a lease of its own.
type etcdClient struct {
	conn *clientv3.Client
	ttl  time.Duration
}

func openEtcd(s spec) (client, error) {
	conn, err := clientv3.New(clientv3.Config{Endpoints: s.Addrs, Logger: zap.NewNop()})
	return etcdClient{conn, s.TTL}, err
}

func (c etcdClient) acquire(ctx context.Context, name string) (hold, error) {
	session, err := concurrency.NewSession(c.conn, concurrency.WithTTL(int(c.ttl.Seconds())))
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(session, "/lock/"+name)
	if err := m.Lock(ctx); err != nil {
		_ = session.Close()
		return nil, err
	}
	return etcdHold{session, m}, nil
}

func (c etcdClient) close() { _ = c.conn.Close() }

type etcdHold struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (h etcdHold) err() error { return closed(h.session.Done()) }

func (h etcdHold) release() error {
	err := h.mutex.Unlock(context.Background())
	_ = h.session.Close()
	return err
}

// An etcdServer is one member on a loopback port, in a process of its own.
type etcdServer struct {
	addr, peer, dir string
	cmd             *exec.Cmd
	in              io.Closer // its end ends the process
}

// startEtcd starts a server that ends with the scenario.
func startEtcd(b *bed) *etcdServer {
	s := &etcdServer{
		addr: fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(b)),
		peer: fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(b)),
		dir:  hosttest.Dir(b, "peers-etcd-"),
	}
	b.Cleanup(s.kill)
	s.start(b)
	return s
}

// start starts the server on its data and waits until it serves.
func (s *etcdServer) start(b *bed) {
	s.cmd = exec.Command(os.Args[0], "etcd", s.addr, s.peer, s.dir)
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	b.must(err)
	out, err := s.cmd.StdoutPipe()
	b.must(err)
	b.must(s.cmd.Start())
	s.in = in
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatalf("etcd does not start: %v %q", err, line)
	}
}

// kill ends the server as SIGKILL does; its data stay.
func (s *etcdServer) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.in.Close()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// serveEtcd is the server's process: it prints a line when it serves, and ends with its input.
func serveEtcd(args []string) error {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.LogOutputs = args[2], "fatal", []string{"stderr"}
	client, peer := url.URL{Scheme: "http", Host: args[0]}, url.URL{Scheme: "http", Host: args[1]}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + strings.TrimSuffix(peer.String(), "/")
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}
