package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/netx"
	"limpet/sync/testenv/nettest"
)

// Every error that a person can meet has a next step, however deep it lies.
func TestHint(t *testing.T) {
	group := things.GroupResource()
	broken := netx.ReadEnvironment(func(name string) string { return map[string]string{"HTTPS_PROXY": "http:/x"}[name] }).Faults()[0]
	for name, tc := range map[string]struct {
		err   error
		want  string // part of the hint
		retry bool
	}{
		"no server": {errNoServer, "--provisioning-server-url", false},
		"proxy":     {broken, "correct HTTPS_PROXY", false},
		"flag":      {flagErrorf("--tls-ca-file", "wrong"), "correct --tls-ca-file", false},
		"no such host": {&net.OpError{Op: "dial", Err: &net.DNSError{Name: "nowhere.test", IsNotFound: true}}, `host name "nowhere.test"`,
			true},
		"refused":           {errRefused, "port", true},
		"unknown authority": {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "--tls-ca-file", false},
		"another host": {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, "host name that the server's certificate holds",
			false},
		"expired": {x509.CertificateInvalidError{Reason: x509.Expired}, "clock of this host", false},
		"alert, none": {&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")},
			"--tls-cert-file FILE --tls-key-file FILE", true},
		"alert, expired": {&net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}, "check its dates", true},
		"alert":          {&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, "--tls-cert-file", true},
		"exchange alert": {&ExchangeError{Err: &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}},
			"--tls-cert-file", true},
		"exchange plain": {&ExchangeError{Err: errors.New("http: server gave HTTP response to HTTPS client")},
			"http:// in --token-exchange-url", true},
		"nobody": {apierrors.NewForbidden(group, "", errors.New(`User "system:anonymous" cannot list`)), "--tls-cert-file", false},
		"401":    {apierrors.NewUnauthorized("no"), "--token", false},
		"403":    {apierrors.NewForbidden(group, "", errors.New("no")), "--namespace", false},
		"private Git host": {apierrors.NewBadRequest(`spec.git.url: Invalid value: "https://h/a": repository URL host must resolve to a public or allowed address`),
			"allowed_git_urls", false},
		"unknown kind":       {apierrors.NewNotFound(group, ""), "limpet crds", false},
		"unknown object":     {apierrors.NewNotFound(group, "a"), "", false},
		"429":                {apierrors.NewTooManyRequests("slow down", 3), "busy", true},
		"timeout":            {&timeoutError{After: time.Second}, "network", true},
		"deadline":           {context.DeadlineExceeded, "network", true},
		"clock":              {fmt.Errorf("%w: no answer", errClockUnknown), "Date header", false},
		"exchange 401":       {&ExchangeError{Status: 401, Err: errors.New("no")}, "--token-file", false},
		"exchange 404":       {&ExchangeError{Status: 404, Err: errors.New("no")}, "/sign/access-token", false},
		"exchange 503":       {&ExchangeError{Status: 503, Err: errors.New("no")}, "is running", true},
		"exchange authority": {&ExchangeError{Err: x509.UnknownAuthorityError{}}, "--tls-ca-file", false},
		"web page":           {&NotKubernetesError{Got: "a web page"}, "APIGroupList", false},
		"plain HTTP":         {errors.New("http: server gave HTTP response to HTTPS client"), "http://", false},
		"anything else":      {errors.New("x"), "", false},
		"nothing":            {nil, "", false},
	} {
		for _, err := range []error{tc.err, wrap(tc.err)} {
			hint := Hint(err)
			if (hint == "") != (tc.want == "") || !strings.Contains(hint, tc.want) {
				t.Errorf("%s: hint %q for %v", name, hint, err)
			}
			if name != "plain HTTP" && Retryable(tc.err) != tc.retry {
				t.Errorf("%s: retryable %v", name, !tc.retry)
			}
		}
	}
}

// wrap puts around an error what net/http and this package put around it.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("watch jobs: %w", &UnreachableError{Server: "https://h", Err: &url.Error{Op: "Get", URL: "https://h", Err: err}})
}

func TestRetryAfter(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
		ok   bool
	}{
		"status":      {apierrors.NewTooManyRequests("x", 7), 7 * time.Second, true},
		"capped":      {apierrors.NewTooManyRequests("x", 100000), 5 * time.Minute, true},
		"no wish":     {apierrors.NewTooManyRequests("x", 0), 0, false},
		"not an API":  {errors.New("x"), 0, false},
		"wrapped":     {fmt.Errorf("list: %w", apierrors.NewServerTimeout(things.GroupResource(), "list", 9)), 9 * time.Second, true},
		"none at all": {nil, 0, false},
	} {
		if got, ok := RetryAfter(tc.err); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %v %v, want %v %v", name, got, ok, tc.want, tc.ok)
		}
	}
}

// TestCertificatesOfTheServer: what is wrong with the certificates of either side has
// a next step that names the flag, for the server and for the token exchange.
func TestCertificatesOfTheServer(t *testing.T) {
	dir := t.TempDir()
	for i, c := range nettest.TLSCases(t) {
		file := func(name string, data []byte) string {
			if len(data) == 0 {
				return ""
			}
			path := filepath.Join(dir, fmt.Sprint(i, name))
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		want := map[string]string{"unknown authority": "--tls-ca-file", "another host": "host name that the server's certificate holds",
			"expired": "clock of this host", "not yet valid": "clock of this host", "no TLS": "http://"}[c.Name]
		if want == "" {
			want = "--tls-cert-file"
		}
		if strings.HasPrefix(c.Name, "40") { // of the server's words, see TestHint
			continue
		}
		check := false
		files := TLS{CAFile: file("ca", c.Creds.CA), CertFile: file("cert", c.Creds.ClientCert), KeyFile: file("key", c.Creds.ClientKey),
			Insecure: &check}
		for name, config := range map[string]Config{"server": {Server: c.URL}, "exchange": {Server: "https://127.0.0.1:1", Token: "t",
			TokenExchangeURL: c.URL + "/sign/access-token"}} {
			t.Run(c.Name+" of the "+name, func(t *testing.T) {
				t.Parallel()
				config.TLS, config.Logger = files, slog.New(slog.DiscardHandler)
				_, _, err := connect(t, config).once(t.Context(), "GET", "/apis", nil, "", nil)
				if err == nil || !strings.Contains(Hint(err), want) {
					t.Errorf("%v, with the hint %q, want %q", err, Hint(err), want)
				}
			})
		}
	}
}
