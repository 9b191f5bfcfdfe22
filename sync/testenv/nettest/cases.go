package nettest

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"limpet/sync/auth"
)

// TLSCase is a host with which something is wrong, and what is to be said about it.
type TLSCase struct {
	Name  string
	URL   string
	Creds auth.Credentials // without an identity
	Says  []string
}

// TLSCases starts a host for each. Who asks them says the same words everywhere.
func TLSCases(t testing.TB) []TLSCase {
	t.Helper()
	ca, other := NewAuthority(t), NewAuthority(t)
	trusting := auth.Credentials{CA: ca.PEM}
	with := func(a *Authority, notAfter time.Time) auth.Credentials {
		c := trusting
		c.ClientCert, c.ClientKey = a.Client(t, notAfter)
		return c
	}
	soon := time.Now().Add(time.Hour)
	asking := func(kind tls.ClientAuthType, h http.Handler) string {
		return ca.Serve(t, Site{Clients: kind, Handler: h})
	}
	plain := httptest.NewServer(Answers(200))
	t.Cleanup(plain.Close)
	const none, strange = "none is given: tls.crt and tls.key", "another authority than that of tls.crt"
	return []TLSCase{
		{"unknown authority", ca.Serve(t, Site{}), auth.Credentials{}, []string{"x509: certificate signed by unknown authority", "ca.crt",
			"openssl s_client -showcerts -connect 127.0.0.1:"}},
		{"another host", ca.Serve(t, Site{Name: "other.example.com"}), trusting, []string{"not valid for 127.0.0.1, only for other.example.com",
			"check the host"}},
		{"expired", ca.Serve(t, Site{NotAfter: time.Now().Add(-time.Minute)}), trusting, []string{"has expired on 2", "clock of this host"}},
		{"not yet valid", ca.Serve(t, Site{NotAfter: time.Now().Add(72 * time.Hour)}), trusting,
			[]string{"not valid before 2", "clock of this host"}},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), trusting, []string{"not a TLS server: 127.0.0.1:", "check scheme and port"}},
		{"client certificate missing", asking(tls.RequireAndVerifyClientCert, nil), trusting, []string{none}},
		{"client certificate of another authority", asking(tls.RequireAndVerifyClientCert, nil), with(other, soon), []string{strange}},
		{"client certificate expired", asking(tls.RequireAndVerifyClientCert, nil), with(ca, time.Now().Add(-time.Minute)),
			[]string{"expired certificate", "or another one: tls.crt"}},
		{"400 without a client certificate", asking(tls.RequestClientCert, Answers(400)), trusting, []string{"400", none}},
		{"401 without a client certificate", asking(tls.RequestClientCert, Answers(401)), trusting, []string{none}},
		{"403 without a client certificate", asking(tls.RequestClientCert, Answers(403)), trusting, []string{none}},
		{"403 with that of another", asking(tls.RequestClientCert, Answers(403)), with(other, soon), []string{strange}},
	}
}
