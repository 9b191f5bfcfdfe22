package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/netx"
)

// NotKubernetesError means that the answer is not that of a Kubernetes-style API but of
// another program, a login page or a captive portal.
type NotKubernetesError struct {
	URL    string // without secrets
	Status int
	Got    string // what was found instead, in a few words
}

func (e *NotKubernetesError) Error() string {
	return fmt.Sprintf("%s is not a Kubernetes-style API: got %s", e.URL, e.Got)
}

// UnreachableError means that the server gave no answer: no route,
// no name, refused, an untrusted certificate, no answer in time.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("reach %s: %v", e.Server, e.Err) }
func (e *UnreachableError) Unwrap() error { return e.Err }

// timeoutError means that a call had no complete answer in time.
type timeoutError struct{ After time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("no complete answer within %v", e.After) }

// Timeout makes it one for net.Error.
func (e *timeoutError) Timeout() bool { return true }

// Temporary is the rest of net.Error.
func (e *timeoutError) Temporary() bool { return true }

var _ net.Error = (*timeoutError)(nil)

// is reports whether an error of this type is in the chain of err.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// isBusy reports whether a status says that the server is busy or not there.
func isBusy(code int32) bool {
	return code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusServiceUnavailable ||
		code == http.StatusGatewayTimeout
}

// Retryable reports whether the same call may succeed a little later: the server is busy or failing
// (429, 500, 502, 503, 504), the call took too long, or the connection broke. The call may have
// been carried out nevertheless.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errTooLarge) || is[*NotKubernetesError](err) ||
		is[*FlagError](err) || is[*redirectError](err) || isCertificateError(err) {
		return false
	}
	if exchange, ok := errors.AsType[*ExchangeError](err); ok {
		return exchange.Status == 0 || exchange.Status == http.StatusTooManyRequests || exchange.Status >= 500
	}
	if status := statusOf(err); status != nil {
		return isBusy(status.Code) || status.Code == http.StatusInternalServerError
	}
	return isTransportError(err)
}

// UnavailableError means that a call failed for a reason that does not depend on its
// object: no answer, a busy server (429, 502, 503, 504), the answer of another program,
// or a token that is not accepted at the moment (401). The same call may succeed later.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return "API unavailable: " + e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// NotServed reports whether a server has answered that it does not have an object or its
// kind, or not for this client. It will say the same next time.
func NotServed(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// AsUnavailable wraps the error of a call in an *UnavailableError when it is one, and returns
// any other as it is. err must be of a call, not of a disk.
func AsUnavailable(err error) error {
	if err == nil || is[*UnavailableError](err) || errors.Is(err, context.Canceled) || errors.Is(err, errTooLarge) {
		return err
	}
	status := statusOf(err)
	if is[*NotKubernetesError](err) || is[*ExchangeError](err) || status == nil && isTransportError(err) ||
		status != nil && (isBusy(status.Code) || status.Code == http.StatusUnauthorized) {
		return &UnavailableError{Err: err}
	}
	return err
}

// isTransportError reports whether a call had no answer.
func isTransportError(err error) bool {
	return is[net.Error](err) || is[*url.Error](err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "stream error") || strings.Contains(err.Error(), "http2: ")
}

// transportCause drops the method and the URL that net/http puts in front.
func transportCause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func isCertificateError(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err) ||
		is[x509.CertificateInvalidError](err)
}

func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	s := status.Status()
	return &s
}

// RetryAfter returns how long the server asked to wait, at most 5 minutes.
func RetryAfter(err error) (time.Duration, bool) {
	if exchange, ok := errors.AsType[*ExchangeError](err); ok && !exchange.Next.IsZero() {
		return min(max(time.Until(exchange.Next), 0), longestRetryAfter), true
	}
	if status := statusOf(err); status != nil && status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		return min(time.Duration(status.Details.RetryAfterSeconds)*time.Second, longestRetryAfter), true
	}
	return 0, false
}

// retryAfterOf returns how long an answer asks to wait, at most 5 minutes.
func retryAfterOf(resp *http.Response) (time.Duration, bool) {
	after, ok := netx.RetryAfter(resp.Header, time.Now())
	return min(after, longestRetryAfter), ok
}

// AllowedGitURLs is what to do about a Git host that the server's guard refuses.
const AllowedGitURLs = "add the Git host to allowed_git_urls below [provisioning] in the grafana.ini of the server"

// RefusesGitHost reports whether a text is that of Grafana's guard, which refuses private Git
// hosts.
func RefusesGitHost(text string) bool {
	return strings.Contains(text, "repository URL host must resolve to a public or allowed address")
}

// Hint returns what to do next about an error of this package, as a sentence, or "" when it knows
// nothing.
func Hint(err error) string {
	if err == nil {
		return ""
	}
	flag, isFlag := errors.AsType[*FlagError](err)
	variable, isVariable := errors.AsType[*netx.EnvironmentError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case RefusesGitHost(err.Error()):
		return AllowedGitURLs
	case errors.Is(err, errNoServer):
		return "set --provisioning-server-url https://HOST[:PORT] or --kubeconfig FILE"
	case isFlag:
		return "correct " + flag.Flag + " and start again"
	case isVariable:
		return "correct " + variable.Name + " and start again"
	case is[*ExchangeError](err):
		exchange, _ := errors.AsType[*ExchangeError](err)
		switch {
		case exchange.Status == http.StatusUnauthorized || exchange.Status == http.StatusForbidden:
			return "check --token or --token-file: the exchange does not accept it"
		case exchange.Status != 0 && exchange.Status < 500:
			return "check --token-exchange-url; Grafana's ends in /sign/access-token"
		}
		return cmp.Or(tlsHint(err, "--token-exchange-url"), "check --token-exchange-url and that the exchange is running")
	case is[*NotKubernetesError](err), is[*redirectError](err):
		return "set --provisioning-server-url to a Grafana or Kubernetes API server; curl -k ADDRESS/apis must return an APIGroupList"
	case isDNS && dns.IsNotFound:
		return fmt.Sprintf("check the host name %q in --provisioning-server-url and the DNS of this host", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "check the port in --provisioning-server-url and that the server is running"
	case errors.Is(err, errClockUnknown):
		return "check that the server sends a Date header and that it answers at all"
	}
	if hint := cmp.Or(tlsHint(err, "--provisioning-server-url"), statusHint(err)); hint != "" {
		return hint
	}
	if is[*timeoutError](err) || errors.Is(err, context.DeadlineExceeded) {
		return "check the network between this host and the server, and any firewall that drops packets"
	}
	return ""
}

// tlsHint is for handshakes with the server that flag names.
func tlsHint(err error, flag string) string {
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	// What the other side said when it broke the handshake off; its type is hidden in crypto/tls.
	_, alert, refused := strings.Cut(err.Error(), "remote error: tls: ")
	switch {
	case is[x509.HostnameError](err):
		return "use a host name that the server's certificate holds"
	case isInvalid && invalid.Reason == x509.Expired:
		return "check the clock of this host and the dates of the server's certificate"
	case isCertificateError(err):
		return "give the authority that signed the server's certificate with --tls-ca-file FILE"
	case is[tls.RecordHeaderError](err), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "not a TLS server: write http:// in " + flag
	case strings.Contains(alert, "certificate") && !strings.Contains(alert, "required"):
		return "the server does not take the certificate in --tls-cert-file, or has got none: check its dates and who signed it"
	case refused:
		return "the server requires a client certificate: --tls-cert-file FILE --tls-key-file FILE"
	}
	return ""
}

func statusHint(err error) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "system:anonymous"):
		return "the server does not know who asks: give --token-file FILE, or a client certificate with --tls-cert-file and --tls-key-file"
	case apierrors.IsUnauthorized(err):
		return "token not accepted: check --token or --token-file; with client certificates, --tls-cert-file"
	case apierrors.IsForbidden(err):
		return "use --namespace NAME of the token, or give it a role that may list, watch and update (in Grafana: Admin for jobs and history)"
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		return "the server is busy; the call is repeated by itself"
	case apierrors.IsNotFound(err) && !IsAbsent(err):
		return "the server does not have this kind: run limpet crds | kubectl apply -f -, or check --provisioning-server-url"
	}
	return ""
}

// IsAbsent reports whether the API says that it has no object of the name that was asked for. The 404
// of a proxy, or of a server without the kind, names no object.
func IsAbsent(err error) bool {
	status := statusOf(err)
	return apierrors.IsNotFound(err) && status != nil && status.Details != nil && status.Details.Name != ""
}
