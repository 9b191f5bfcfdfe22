package git

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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/revision"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem = issue(t, nil, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func issue(t *testing.T, a *authority, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "limpet test"}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	c.NotBefore = c.NotAfter.Add(-2 * time.Hour)
	parent, signer := c, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestHTTPS(t *testing.T) {
	quiet(t)
	plain := newServer(t)
	newOrigin(t, plain.root, "site.git").commit("one", map[string]string{"a.json": "1"})
	ca := newAuthority(t)
	client, clientKey, clientPEM := issue(t, ca, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	_ = client
	serve := func(cert *x509.Certificate, mutual bool) string {
		c, key, _ := issue(t, ca, cert)
		ts := httptest.NewUnstartedServer(plain.handler(t))
		ts.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		ts.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}}}
		if mutual {
			ts.TLS.ClientAuth, ts.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
			ts.TLS.ClientCAs.AddCert(ca.cert)
		}
		ts.StartTLS()
		t.Cleanup(ts.Close)
		return ts.URL + "/site.git"
	}
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	good := serve(&x509.Certificate{IPAddresses: local}, false)
	mutual := serve(&x509.Certificate{IPAddresses: local}, true)
	wrongHost := serve(&x509.Certificate{DNSNames: []string{"other.example.com"}}, false)
	expired := serve(&x509.Certificate{IPAddresses: local, NotAfter: time.Now().Add(-time.Minute)}, false)
	early := serve(&x509.Certificate{IPAddresses: local, NotAfter: time.Now().Add(72 * time.Hour)}, false)
	trusting := auth.Credentials{CA: ca.pem, Username: "u", Password: secret}
	paired := trusting
	paired.ClientCert, paired.ClientKey = clientPEM, keyPEM(t, clientKey)
	_, staleKey, stalePEM := issue(t, ca, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: time.Now().Add(-time.Minute)})
	stale := trusting
	stale.ClientCert, stale.ClientKey = stalePEM, keyPEM(t, staleKey)
	_, strangeKey, strangePEM := issue(t, newAuthority(t), &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	strange := trusting
	strange.ClientCert, strange.ClientKey = strangePEM, keyPEM(t, strangeKey)
	broken := trusting
	broken.CA = []byte("-----BEGIN NOTHING-----")
	unpaired := paired
	unpaired.ClientKey = keyPEM(t, ca.key)
	cases := []struct {
		name, url string
		creds     auth.Credentials
		kind      Kind
		says      string
	}{
		{"unknown authority", good, auth.Credentials{}, Unreachable, "openssl s_client -showcerts -connect 127.0.0.1:"},
		{"own authority", good, trusting, "", ""},
		{"another host", wrongHost, trusting, Unreachable, "another host than 127.0.0.1: other.example.com"},
		{"expired", expired, trusting, Unreachable, "has expired, on 2"},
		{"not yet valid", early, trusting, Unreachable, "not valid before 2"},
		{"no client certificate", mutual, trusting, Auth, "client certificate"},
		{"client certificate", mutual, paired, "", ""},
		{"client certificate that has expired", mutual, stale, Auth, "client certificate"},
		{"client certificate of another authority", mutual, strange, Auth, "client certificate"},
		{"no certificate in ca.crt", good, broken, Auth, "ca.crt"},
		{"not a pair", good, unpaired, Auth, "not a pair"},
		{"http there", strings.Replace(plain.URL, "http:", "https:", 1) + "/site.git", trusting, Protocol, "TLS"},
	}
	m := openMirrors(t, Options{})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ref, err := m.Resolve(t.Context(), Remote{URL: c.url, Creds: &c.creds}, revision.Branch(""))
			if c.kind != "" {
				told(t, err, c.kind, c.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Fetch(t.Context(), Remote{URL: c.url, Creds: &c.creds}, ref); err != nil {
				t.Fatal(err)
			}
		})
	}
	m.Close()
}

// TestConnectionsOfManyHosts: hosts that are asked in turn keep their connections,
// a handshake costs more than a look.
func TestConnectionsOfManyHosts(t *testing.T) {
	quiet(t)
	plain := newServer(t)
	newOrigin(t, plain.root, "site.git").commit("one", map[string]string{"a.json": "1"})
	var made atomic.Int32
	const hosts = 40
	var urls []string
	for range hosts {
		ts := httptest.NewUnstartedServer(plain.handler(t))
		ts.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				made.Add(1)
			}
		}
		ts.Start()
		t.Cleanup(ts.Close)
		urls = append(urls, ts.URL+"/site.git")
	}
	m := openMirrors(t, Options{})
	for range 3 {
		for _, url := range urls {
			if _, err := m.Resolve(t.Context(), Remote{URL: url}, revision.Branch("main")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := made.Load(); n != hosts {
		t.Errorf("%d connections to %d hosts", n, hosts)
	}
	m.Close()
}
