package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/netx"
)

// AllowedGitURLs is what to do about a Git host that the server's guard refuses.
const AllowedGitURLs = "add the Git host to allowed_git_urls below [provisioning] in the grafana.ini of the server"

// RefusesGitHost reports whether a text is that of Grafana's guard, which refuses private Git hosts.
func RefusesGitHost(text string) bool {
	return strings.Contains(text, "repository URL host must resolve to a public or allowed address")
}

// Hint returns what to do next about an error of this package, as a sentence, or "" when it knows nothing.
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
	case apierrors.IsNotFound(err):
		if status := statusOf(err); status != nil && (status.Details == nil || status.Details.Name == "") {
			return "the server does not have this kind: run limpet crds | kubectl apply -f -, or check --provisioning-server-url"
		}
	}
	return ""
}
