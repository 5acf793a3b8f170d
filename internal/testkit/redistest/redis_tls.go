package redistest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// StartRedisTLS starts a server that accepts TLS only, and returns the file of its certificate, which
// is its own authority. The certificate is valid for 127.0.0.1 and localhost. Clients need none.
func StartRedisTLS(t hosttest.TB, args ...string) (r *Redis, caFile string) {
	t.Helper()
	dir := hosttest.Dir(t, "fencelock-certificate-")
	caFile, keyFile := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	pool, err := writeCertificate(caFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ours := []string{"--tls-ca-cert-file", caFile, "--tls-cert-file", caFile, "--tls-key-file", keyFile, "--tls-auth-clients", "no"}
	r = &Redis{settings: append(ours, args...), tls: &tls.Config{RootCAs: pool}}
	r.launch(t)
	return r, caFile
}

// writeCertificate makes a certificate that is valid for a day, and its key.
func writeCertificate(certificate, key string) (*x509.CertPool, error) {
	now := time.Now()
	server := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err1 := x509.CreateCertificate(rand.Reader, server, server, &secret.PublicKey, secret)
	private, err2 := x509.MarshalPKCS8PrivateKey(secret)
	text = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})
	private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool, cmp.Or(err1, err2, os.WriteFile(certificate, text, 0o600), os.WriteFile(key, private, 0o600))
}
