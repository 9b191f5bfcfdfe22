package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"limpet/sync/testenv"
)

// identity is one generation of certificates: an authority, and what it signed
// for the server and for the agent.
type identity struct {
	name           string // of the agent in its certificate
	server         tls.Certificate
	trust          *x509.CertPool
	ca, cert, priv []byte // PEM
}

func newIdentity(t *testing.T, name string) *identity {
	t.Helper()
	sign := func(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	keys := make([]*ecdsa.PrivateKey, 3)
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "authority of " + name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER := sign(ca, ca, keys[0], keys[0])
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		t.Fatal(err)
	}
	server := sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca, keys[1], keys[0])
	client := sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, keys[2], keys[0])
	key, err := x509.MarshalPKCS8PrivateKey(keys[2])
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	i := &identity{name: name, trust: x509.NewCertPool(), server: tls.Certificate{Certificate: [][]byte{server}, PrivateKey: keys[1]},
		ca: block("CERTIFICATE", caDER), cert: block("CERTIFICATE", client), priv: block("PRIVATE KEY", key)}
	i.trust.AddCert(ca)
	return i
}

// front stands before the API and takes nobody without a certificate of the
// present authority.
type front struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	now     *identity
	watches map[string]int // open ones by the name that they came with
}

func newFront(t *testing.T, s *testenv.Server) *front {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{now: newIdentity(t, "agent-0"), watches: map[string]int{}}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = s.Client(t).Transport, -1
	forward.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			name := r.TLS.PeerCertificates[0].Subject.CommonName
			f.count(name, 1)
			defer f.count(name, -1)
		}
		forward.ServeHTTP(w, r)
	}))
	f.Config.ErrorLog, f.EnableHTTP2 = forward.ErrorLog, true
	f.TLS = &tls.Config{NextProtos: []string{"h2"}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return &tls.Config{NextProtos: []string{"h2"}, Certificates: []tls.Certificate{f.now.server},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: f.now.trust}, nil
	}}
	f.StartTLS()
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

func (f *front) count(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches[name] += n; f.watches[name] == 0 {
		delete(f.watches, name)
	}
}

// rotate begins a new generation, at the front and in the files of an agent.
func (f *front) rotate(t *testing.T, a *agent, name string) {
	t.Helper()
	next := newIdentity(t, name)
	f.mu.Lock()
	f.now = next
	f.mu.Unlock()
	f.write(t, a)
}

// write puts the files in place as a secret mount does: by rename.
func (f *front) write(t *testing.T, a *agent) (ca, cert, key string) {
	t.Helper()
	put := func(name string, data []byte) string {
		part := a.file(t, "tls/"+name+".new", string(data))
		path := part[:len(part)-len(".new")]
		if err := os.Rename(part, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return put("ca", f.now.ca), put("cert", f.now.cert), put("key", f.now.priv)
}

// TestNetRotation: authority and certificates of both sides are replaced again
// and again. The agent works on without a restart, and soon nothing of it is
// left that came with what was replaced, open watches included.
func TestNetRotation(t *testing.T) {
	t.Parallel()
	f := newField(t, testenv.Options{}, 1, fieldLease()...)
	a, fr := f.agents[0], newFront(t, f.api)
	ca, cert, key := fr.write(t, a)
	a.args = []string{"--provisioning-server-url", fr.URL, "--tls-ca-file", ca, "--tls-cert-file", cert, "--tls-key-file", key,
		"--token-file", a.file(t, "token", f.api.TokenOf(a.name)+"\n")}
	f.repository("quick", "")
	f.start()
	var uids []string
	rounds := times(5, 100)
	began := time.Now()
	for i := range rounds {
		fr.rotate(t, a, fmt.Sprintf("agent-%d", i+1))
		uids = append(uids, string(f.job(fmt.Sprintf("job-%03d", i), "quick")))
		within(t, time.Minute, "the job is done with the new certificates", func() bool { return f.waiting() == 0 })
	}
	took := time.Since(began)
	began = time.Now()
	within(t, time.Minute, "the watches came with the last certificate", func() bool {
		fr.mu.Lock()
		defer fr.mu.Unlock()
		return len(fr.watches) == 1 && fr.watches[fr.now.name] > 0
	})
	f.done(time.Minute, uids...)
	t.Logf("fault: authority and certificates rotated %d times in %.0f s, a job done after each, no watch of before after %.1f s",
		rounds, took.Seconds(), time.Since(began).Seconds())
}
