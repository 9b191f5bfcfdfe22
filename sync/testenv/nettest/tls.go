package nettest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// Authority signs certificates of hosts on loopback and of their clients.
type Authority struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one under a name of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour)}
	a.cert, a.key = a.sign(t, template)
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	return a
}

// sign makes a certificate of two hours that ends when the template says. An
// authority without a key signs itself.
func (a *Authority) sign(t testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	template.Subject = pkix.Name{CommonName: "limpet test " + template.SerialNumber.String()}
	template.NotBefore = template.NotAfter.Add(-2 * time.Hour)
	parent, signer := a.cert, a.key
	if signer == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// Client is a certificate and its key in PEM, for auth.Credentials.
func (a *Authority) Client(t testing.TB, notAfter time.Time) (cert, key []byte) {
	t.Helper()
	c, k := a.sign(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: notAfter})
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Site is a host that speaks TLS. Its zero value is sound.
type Site struct {
	Name     string             // that its certificate is for, in place of its address
	NotAfter time.Time          // of its certificate, which is good for two hours before; zero = in an hour
	Clients  tls.ClientAuthType // whether it asks for certificates, of its own authority
	Handler  http.Handler       // nil = 200
}

// Serve starts a Site with a certificate of a, and returns its URL.
func (a *Authority) Serve(t testing.TB, s Site) string {
	t.Helper()
	template := &x509.Certificate{NotAfter: s.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}}
	if s.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if s.Name != "" {
		template.IPAddresses, template.DNSNames = nil, []string{s.Name}
	}
	if s.Handler == nil {
		s.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}
	cert, key := a.sign(t, template)
	server := httptest.NewUnstartedServer(s.Handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}, ClientAuth: s.Clients,
		ClientCAs: x509.NewCertPool()}
	server.TLS.ClientCAs.AddCert(a.cert)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// Answers is a handler that answers each request with a status and nothing else.
func Answers(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// ServeAsking starts a Site that takes certificates of clients and demands none. shown counts them.
func (a *Authority) ServeAsking(t testing.TB, answer http.Handler) (url string, shown *atomic.Int64) {
	t.Helper()
	shown = &atomic.Int64{}
	return a.Serve(t, Site{Clients: tls.VerifyClientCertIfGiven, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Add(int64(len(r.TLS.PeerCertificates)))
		answer.ServeHTTP(w, r)
	})}), shown
}
