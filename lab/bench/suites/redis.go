package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// address is where the tests of all projects expect a server.
const address = "127.0.0.1:6379"

// startRedis starts a server without persistence, and returns what stops it.
func startRedis() (stop func(), err error) {
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		return nil, errors.New("a server runs on " + address + " already, and the tests would flush it")
	}
	dir, err := os.MkdirTemp("", "suites-redis-")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("redis-server", "--port", "6379", "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("redis-server could not be started: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	for range 200 {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return stop, nil
		}
		time.Sleep(25 * time.Millisecond)
	}
	stop()
	return nil, errors.New("redis-server does not start on " + address)
}

// flush empties the server: some tests rely on their project's keys to be deleted.
func flush() error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("FLUSHALL\r\n")); err != nil {
		return err
	}
	reply := make([]byte, len("+OK\r\n"))
	_, err = io.ReadFull(conn, reply)
	return err
}
