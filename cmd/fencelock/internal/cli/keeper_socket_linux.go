package cli

import (
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// socketOf returns the address at which the keeper of an acquisition listens, in the namespace of
// abstract sockets, which end with their process.
func socketOf(owner string) string { return "@fencelock-keeper-" + owner }

// listenForRelease returns requests of this user and of root, until the returned function is called. If it
// cannot listen, there are no requests.
func listenForRelease(owner string) (<-chan releaseRequest, func()) {
	requests, done := make(chan releaseRequest), make(chan struct{})
	listener, err := net.Listen("unix", socketOf(owner))
	if err != nil {
		return nil, func() {}
	}
	go func() { // ends when the listener is closed
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if !ofSameUser(conn) {
				conn.Close()
				continue
			}
			select {
			case requests <- releaseRequest{func(err error) { _, _ = io.WriteString(conn, answerOf(err)); conn.Close() }}:
			case <-done:
				conn.Close()
			}
		}
	}()
	return requests, func() { close(done); listener.Close() }
}

// askKeeper asks a keeper on this host to release its lock, and returns its answer. It returns "" if
// there is no such keeper, or if the keeper does not answer.
func askKeeper(owner string) string {
	conn, err := net.Dial("unix", socketOf(owner))
	if err != nil {
		return ""
	}
	defer conn.Close()
	if !ofSameUser(conn) {
		return ""
	}
	_ = conn.SetDeadline(time.Now().Add(keeperLimit))
	answer, _ := io.ReadAll(io.LimitReader(conn, 64)) // an incomplete answer is none
	return string(answer)
}

// keeperLimit is how long a keeper may take to answer: the release timeout of the lock and a
// second.
const keeperLimit = 6 * time.Second

// ofSameUser reports whether the process at the other end belongs to this user or to root.
func ofSameUser(conn net.Conn) bool {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	same := false
	_ = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
	})
	return same
}
