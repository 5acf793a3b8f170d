//go:build unix

package sandbox_test

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/chaos/sandbox"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/kubetest"
)

// TestKubernetesThrough: with connections through another program, the certificate must still be
// that of the host in the URL.
func TestKubernetesThrough(t *testing.T) {
	t.Parallel()
	server := kubetest.StartTLS(t)
	ca := filepath.Join(t.TempDir(), "ca")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Server.Certificate().Raw}) // for example.com
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		if !strings.HasPrefix(addr, "example.") {
			t.Errorf("a connection to %s", addr)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(server.URL, "https://"))
	}
	engine, end, err := sandbox.Open(t.Context(), "k8s://shop?server=https://example.com&ca="+ca, dial)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if _, err := engine.Acquire(t.Context(), driver.Request{Name: "a", TTL: 6 * time.Second}); err != nil {
		t.Error(err)
	}
	_, _, err = sandbox.Open(t.Context(), "k8s://shop?server=https://example.org&ca="+ca, dial)
	if err == nil || !strings.Contains(err.Error(), "certificate is valid for") {
		t.Errorf("the certificate of another host: %v", err)
	}
	if h, ok := errors.AsType[*engineurl.HintError](err); !ok || !strings.Contains(h.Hint, "TLS") {
		t.Errorf("the hint for it: %+v", h)
	}
}
