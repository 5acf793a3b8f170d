package redistest

import (
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

// StartRedisTLS starts a server that accepts TLS only, and returns the file of the authority that
// signed its certificate. The certificate is valid for 127.0.0.1 and localhost. Clients need no
// certificate.
func StartRedisTLS(t hosttest.TB, args ...string) (r *Redis, caFile string) {
	t.Helper()
	dir := hosttest.Dir(t, "fencelock-certificates-")
	pool, err := writeCertificates(dir)
	if err != nil {
		t.Fatal(err)
	}
	caFile = filepath.Join(dir, "ca.crt")
	ours := []string{
		"--tls-ca-cert-file", caFile, "--tls-cert-file", filepath.Join(dir, "server.crt"),
		"--tls-key-file", filepath.Join(dir, "server.key"), "--tls-auth-clients", "no",
	}
	r = &Redis{settings: append(ours, args...), tls: &tls.Config{RootCAs: pool}}
	r.launch(t)
	return r, caFile
}

// writeCertificates makes an authority and a server certificate, valid for a
// day, and returns the authority.
func writeCertificates(dir string) (*x509.CertPool, error) {
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fencelock test authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca, err := writeCertificate(filepath.Join(dir, "ca.crt"), authority, authority, caKey, caKey)
	if err != nil {
		return nil, err
	}
	if _, err := writeCertificate(filepath.Join(dir, "server.crt"), server, authority, key, caKey); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return pool, writeKey(filepath.Join(dir, "server.key"), key)
}

func writeCertificate(file string, c, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	if err := writePEM(file, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(file, "PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
