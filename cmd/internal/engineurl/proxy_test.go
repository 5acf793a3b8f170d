//go:build unix

package engineurl_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// TestPartialProxy: if a proxy closes the connection at a command that it does not know, as twemproxy
// does, the error names the proxy, and the hint gives the remedy.
func TestPartialProxy(t *testing.T) {
	t.Parallel()
	addr := partialProxy(t, redistest.StartRedis(t).Addr())
	_, _, err := engineurl.Open(t.Context(), "redis://"+addr, nil)
	hint, ok := errors.AsType[*engineurl.HintError](err)
	if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "a proxy answers here") || !ok || !strings.Contains(hint.Hint, "the Redis server itself") {
		t.Errorf("got %v, want ErrConfig that names the proxy", err)
	}
}

// partialProxy passes on PING and EVAL to a server. It returns its address.
func partialProxy(t *testing.T, server string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go passOn(client, server) // ends with the connection
		}
	}()
	return l.Addr().String()
}

func passOn(client net.Conn, server string) {
	defer client.Close()
	behind, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer behind.Close()
	go func() { _, _ = io.Copy(client, behind) }() // ends with the connection to the server
	for in := bufio.NewReader(client); ; {
		var parts, length int
		var command string
		if n, err := fmt.Fscanf(in, "*%d\r\n", &parts); n != 1 || err != nil {
			return
		}
		text := fmt.Sprintf("*%d\r\n", parts)
		for i := range parts {
			if n, err := fmt.Fscanf(in, "$%d\r\n", &length); n != 1 || err != nil {
				return
			}
			part := make([]byte, length+2)
			if _, err := io.ReadFull(in, part); err != nil {
				return
			}
			if i == 0 {
				command = strings.ToUpper(string(part[:length]))
			}
			text += fmt.Sprintf("$%d\r\n%s", length, part)
		}
		if command != "PING" && command != "EVAL" {
			return
		}
		if _, err := io.WriteString(behind, text); err != nil {
			return
		}
	}
}
