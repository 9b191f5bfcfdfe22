package e2e

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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// What happens to watches: agents learn of every job, whatever becomes of the connection that was
// to tell them.

// TestNetHalfOpenWatch: a device on the way drops the connection state silently. A new job is
// found within a minute, although the watch is silent and does not break.
func TestNetHalfOpenWatch(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	agents := suite.Count(1, 12)
	f := newFleet(t, testenv.Options{}, agents)
	doors := make([]*relay, agents)
	for i, a := range f.agents {
		doors[i] = f.useRelay(a)
		a.flags = append(a.flags, "--repository-selector", "site="+a.name)
		f.repository("repo-"+a.name, "", map[string]string{"site": a.name})
	}
	f.start()
	var took []time.Duration
	for round := range suite.Count(1, 3) {
		for _, d := range doors {
			d.freeze()
		}
		began := time.Now()
		for _, a := range f.agents {
			f.job(fmt.Sprintf("job-%d-%s", round, a.name), "repo-"+a.name)
		}
		for left := agents; left > 0; {
			within(t, 70*time.Second, "the next job is done", func() bool { return f.pendingJobs() < left })
			for now := f.pendingJobs(); left > now; left-- {
				took = append(took, time.Since(began))
			}
		}
	}
	if worst := slices.Max(took); worst > time.Minute {
		t.Errorf("a job was done after %s", worst)
	}
}

// TestNetForgottenVersions: while the watches are cut, jobs come and go, and the
// server forgets the versions in which they did. No job is missed and none is done twice.
func TestNetForgottenVersions(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	agents := suite.Count(2, 4)
	f := newFleet(t, testenv.Options{NoWatchCache: true}, agents, append(fleetLease(), "--job-interval", "1h")...)
	doors := make([]*relay, agents)
	for i, a := range f.agents {
		doors[i] = f.useRelay(a)
		a.flags = append(slices.Clone(a.flags), "--repository-selector", "site="+a.name)
		f.repository("repo-"+a.name, "", map[string]string{"site": a.name})
	}
	f.start()
	var uids []string
	rounds := suite.Count(2, 5)
	for round := range rounds {
		for _, d := range doors {
			d.close()
		}
		for _, a := range f.agents {
			for n := range 2 {
				uids = append(uids, string(f.job(fmt.Sprintf("job-%d-%d-%s", round, n, a.name), "repo-"+a.name)))
			}
			f.remove(f.job("short-"+a.name, "repo-"+a.name)) // nobody can know that it was there
		}
		f.api.Compact(t)
		for _, d := range doors {
			d.reopen()
		}
		within(t, time.Minute, "all jobs have ended", func() bool { return f.pendingJobs() == 0 })
	}
	f.verifyDone(time.Minute, uids...)
	relists := 0
	for _, r := range f.api.Requests(t, f.began) {
		if strings.HasPrefix(r.User, "agent-") && strings.HasSuffix(r.Path, "/jobs") && r.Method == "GET" &&
			(strings.Contains(r.Query, "sendInitialEvents=true") || !strings.Contains(r.Query, "watch=")) {
			relists++
		}
	}
	forgotten := agents * rounds
	if least := forgotten; relists < least {
		t.Errorf("the jobs were listed %d times, so versions were not forgotten; want %d at least", relists, least)
	}
}

// identity is one generation of certificates: an authority, and what it signed for the server and
// for the agent.
type certificates struct {
	name           string // of the agent in its certificate
	server         tls.Certificate
	trust          *x509.CertPool
	ca, cert, priv []byte // PEM
}

func newCertificates(t *testing.T, name string) *certificates {
	t.Helper()
	sign := func(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour),
			time.Now().Add(time.Hour)
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
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "authority of " + name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	caDER := sign(ca, ca, keys[0], keys[0])
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		t.Fatal(err)
	}
	server := sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca, keys[1], keys[0])
	client := sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca,
		keys[2], keys[0])
	key, err := x509.MarshalPKCS8PrivateKey(keys[2])
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	i := &certificates{name: name, trust: x509.NewCertPool(), server: tls.Certificate{Certificate: [][]byte{server}, PrivateKey: keys[1]},
		ca: block("CERTIFICATE", caDER), cert: block("CERTIFICATE", client), priv: block("PRIVATE KEY", key)}
	i.trust.AddCert(ca)
	return i
}

// mtlsProxy stands before the API and requires a client certificate of the present authority.
type mtlsProxy struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	now     *certificates
	watches map[string]int // open ones by the name that they came with
}

func newMTLSProxy(t *testing.T, s *testenv.Server) *mtlsProxy {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := &mtlsProxy{now: newCertificates(t, "agent-0"), watches: map[string]int{}}
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

func (f *mtlsProxy) count(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches[name] += n; f.watches[name] == 0 {
		delete(f.watches, name)
	}
}

// rotate replaces all certificates, of the proxy and in the files of an agent.
func (f *mtlsProxy) rotate(t *testing.T, a *agent, name string) {
	t.Helper()
	next := newCertificates(t, name)
	f.mu.Lock()
	f.now = next
	f.mu.Unlock()
	f.write(t, a)
}

// write puts the files in place as a secret mount does: by rename.
func (f *mtlsProxy) write(t *testing.T, a *agent) (ca, cert, key string) {
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

// TestNetRotation: authority and certificates of both sides are replaced again and again. The agent
// works on without a restart, and soon nothing of it is left that came with what was replaced, open
// watches included.
func TestNetRotation(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	f := newFleet(t, testenv.Options{}, 1, fleetLease()...)
	a, fr := f.agents[0], newMTLSProxy(t, f.api)
	ca, cert, key := fr.write(t, a)
	a.args = []string{"--provisioning-server-url", fr.URL, "--tls-ca-file", ca, "--tls-cert-file", cert, "--tls-key-file", key,
		"--token-file", a.file(t, "token", f.api.TokenOf(a.name)+"\n")}
	f.repository("quick", "", nil)
	f.start()
	var uids []string
	rounds := suite.Count(5, 100)
	for i := range rounds {
		fr.rotate(t, a, fmt.Sprintf("agent-%d", i+1))
		uids = append(uids, string(f.job(fmt.Sprintf("job-%03d", i), "quick")))
		within(t, time.Minute, "the job is done with the new certificates", func() bool { return f.pendingJobs() == 0 })
	}
	within(t, time.Minute, "the watches came with the last certificate", func() bool {
		fr.mu.Lock()
		defer fr.mu.Unlock()
		return len(fr.watches) == 1 && fr.watches[fr.now.name] > 0
	})
	f.verifyDone(time.Minute, uids...)
}

// An agent that was away for longer than its leases, and jobs that are not any more what an agent
// holds them for.

// busyAgent is an agent that holds many jobs at once, one per repository, all behind one gate.
type busyAgent struct {
	*fleet
	*agent
	gate *gate
	jobs []string
}

func newBusyAgent(t *testing.T, jobs int) *busyAgent {
	t.Helper()
	f := newFleet(t, testenv.Options{}, 1, append(fleetLease(), "--drivers", fmt.Sprint(jobs), "--job-interval", "1s", "--cleanup", "off")...)
	c := &busyAgent{fleet: f, agent: f.agents[0], gate: newGate(t, 1)}
	for i := range jobs {
		f.repository(fmt.Sprintf("repo-%02d", i), c.gate.URL, nil)
		c.jobs = append(c.jobs, fmt.Sprintf("job-%02d", i))
	}
	f.start()
	return c
}

// claimAll makes all jobs, waits until they are claimed, and returns their UIDs by name.
func (c *busyAgent) claimAll() map[string]string {
	c.t.Helper()
	uids := map[string]string{}
	for i, name := range c.jobs {
		uids[name] = string(c.job(name, fmt.Sprintf("repo-%02d", i)))
	}
	within(c.t, time.Minute, "all jobs are held", func() bool { return c.claimedJobs() == len(c.jobs) })
	return uids
}

// jobWrites returns the writes about jobs that the agent began since then, and the accepted ones
// that it had begun before.
func (c *busyAgent) jobWrites(since testenv.Mark, begin time.Time) []testenv.Request {
	c.t.Helper()
	var out []testenv.Request
	for _, r := range c.requestsOf(c.agent, since) {
		if r.Method != http.MethodGet && (r.Code < 300 || r.Began >= begin.UnixMilli()) &&
			(strings.Contains(r.Path, "/jobs/") || strings.Contains(r.Path, "/historicjobs")) {
			out = append(out, r)
		}
	}
	return out
}

// TestNetSuspendedAgent: a host sleeps for longer than its leases last, while the work that it
// holds could go on, and others take its jobs. When it wakes it writes nothing about them: it looks
// first.
func TestNetSuspendedAgent(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	c := newBusyAgent(t, suite.Count(6, 30))
	thief := connectUser(t, c.fleet.api, "agent-thief", "default")
	jobs := thief.Resource(api.Jobs).Namespace("default")
	for round := range suite.Count(1, 10) {
		uids := c.claimAll()
		c.suspend(t)
		<-time.After(fleetExpiry + time.Second)
		if round%2 == 0 {
			c.gate.open() // the work is done at the moment of waking
		}
		for _, name := range c.jobs {
			u, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			labels := u.GetLabels()
			labels[api.LabelClaim], labels[api.LabelClaimOwner] = fmt.Sprint(time.Now().UnixMilli()), fmt.Sprintf("thief-%d", round)
			u.SetLabels(labels)
			if _, err := jobs.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		mark, before, begin := c.fleet.api.Mark(t), len(c.lines(stepped("lost"))), time.Now()
		c.resume(t)
		within(t, time.Minute, "all jobs are known to be lost", func() bool { return len(c.lines(stepped("lost")))-before >= len(c.jobs) })
		if wrote := c.jobWrites(mark, begin); len(wrote) > 0 {
			t.Errorf("round %d: on waking it wrote %s %s, answered with %d, and %d more", round, wrote[0].Method, wrote[0].Path, wrote[0].Code,
				len(wrote)-1)
		}
		for _, name := range c.jobs {
			if u := c.getJob(name); u == nil || u.GetLabels()[api.LabelClaimOwner] != fmt.Sprintf("thief-%d", round) {
				t.Errorf("round %d: %s is not any more in the hands of who took it", round, name)
			}
			c.remove(types.UID(uids[name]))
		}
		if round%2 == 0 {
			c.gate.shut()
		}
	}
	for _, w := range auditOf(t, c.fleet.api.Requests(t, c.began), fleetExpiry).wrong {
		t.Error(w)
	}
}

// TestNetReusedName: a job is deleted, and another one made under its name at
// once, while an agent works on the first. The second is a job of its own.
func TestNetReusedName(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	c := newBusyAgent(t, suite.Count(6, 25))
	uids := c.claimAll()
	for range suite.Count(2, 20) {
		old := uids
		uids = map[string]string{}
		for i, name := range c.jobs {
			c.remove(types.UID(old[name]))
			uids[name] = string(c.job(name, fmt.Sprintf("repo-%02d", i)))
		}
		within(t, time.Minute, "all jobs are held again", func() bool { return c.claimedJobs() == len(c.jobs) })
	}
	c.gate.open()
	list := make([]string, 0, len(uids))
	for _, uid := range uids {
		list = append(list, uid)
	}
	c.verifyDone(time.Minute, list...)
	if n := len(c.user.archived()); n != len(list) {
		t.Errorf("%d HistoricJobs, want those of the last %d jobs", n, len(list))
	}
}
