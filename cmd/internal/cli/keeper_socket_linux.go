package cli

import (
	"bufio"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// socketOf returns the address at which the keeper of an acquisition listens, in the namespace of
// abstract sockets, which end with their process.
func socketOf(owner string) string { return "@fencelock-keeper-" + owner }

// listenForRequests returns requests of this user and of root, until the returned function is
// called. If it cannot listen, there are no requests.
func listenForRequests(owner string) (<-chan keeperRequest, func()) {
	requests, done := make(chan keeperRequest), make(chan struct{})
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
			go receive(conn, requests, done) // ends when the request was read and passed on, or is late
		}
	}()
	return requests, func() { close(done); listener.Close() }
}

// receive reads a request and passes it on, until done is closed.
func receive(conn net.Conn, requests chan<- keeperRequest, done <-chan struct{}) {
	if !ofSameUser(conn) {
		conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(keeperLimit))
	line, err := bufio.NewReader(io.LimitReader(conn, 64)).ReadString('\n')
	if err != nil {
		conn.Close()
		return
	}
	answer := func(text string) {
		_, _ = io.WriteString(conn, text) // the asker may be gone
		conn.Close()
	}
	select {
	case requests <- keeperRequest{strings.TrimSpace(line), answer, func() bool { return !closedByPeer(conn) }}:
	case <-done:
		conn.Close()
	}
}

// askKeeper sends a request to the keeper of an acquisition on this host, and returns its answer
// and true. It returns false if there is no such keeper, or if the keeper does not answer within
// limit. It calls waiting if the answer takes longer than a second.
//
// Root also asks keepers of other users. It does not rely on what they say about a release, since
// the server can tell.
func askKeeper(owner, request string, limit time.Duration, waiting func()) (answer string, ok bool) {
	conn, err := net.Dial("unix", socketOf(owner))
	if err != nil {
		return "", false
	}
	defer conn.Close()
	if !ofSameUser(conn) && (os.Geteuid() != 0 || request == askRelease) {
		return "", false
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, request+"\n"); err != nil {
		return "", false
	}
	defer time.AfterFunc(time.Second, waiting).Stop()
	text, err := io.ReadAll(io.LimitReader(conn, 1<<12))
	answer, complete := strings.CutSuffix(string(text), "\n")
	return answer, err == nil && complete
}

// closedByPeer reports whether the process at the other end has closed the connection.
func closedByPeer(conn net.Conn) bool {
	closed := true
	onSocket(conn, func(fd int) {
		n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		closed = err == nil && n == 0
	})
	return closed
}

// ofSameUser reports whether the process at the other end belongs to this user or to root.
func ofSameUser(conn net.Conn) (same bool) {
	onSocket(conn, func(fd int) {
		peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
	})
	return same
}

// onSocket calls do with the descriptor of a connection, unless it is closed.
func onSocket(conn net.Conn, do func(fd int)) {
	if raw, err := conn.(*net.UnixConn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}
