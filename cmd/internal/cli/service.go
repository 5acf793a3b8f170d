//go:build unix

package cli

import (
	"net"
	"os"
	"time"
)

// notifyService sends a line to systemd, if this process belongs to a service that is asked for it. It
// blocks for serviceLimit at most. The line is only for people, so a failure has no effect.
func notifyService(line string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(serviceLimit)) // sockets have deadlines
	_, _ = conn.Write([]byte(line))
}

const serviceLimit = 100 * time.Millisecond
