package kube

import (
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

// Hint returns what to do next about an error of this package, as a sentence, or "" when
// it knows nothing.
func Hint(err error) string {
	var (
		notKubernetes *NotKubernetesError
		exchange      *ExchangeError
		flag          *FlagError
		redirect      *redirectError
		timeout       *timeoutError
		dns           *net.DNSError
		variable      *netx.EnvironmentError
	)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errNoServer):
		return "set --provisioning-server-url https://HOST[:PORT] or --kubeconfig FILE"
	case errors.As(err, &flag):
		return "correct " + flag.Flag + " and start again"
	case errors.As(err, &variable):
		return "correct " + variable.Name + " and start again"
	case errors.As(err, &exchange):
		return exchangeHint(exchange)
	case errors.As(err, &notKubernetes), errors.As(err, &redirect):
		return "set --provisioning-server-url to the address of Grafana's API server or of a Kubernetes API server; curl -k ADDRESS/apis must answer with an APIGroupList"
	case isCertificateError(err):
		return certificateHint(err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("check the host name %q in --provisioning-server-url and the DNS of this host", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "check the port in --provisioning-server-url and that the server is running"
	case errors.Is(err, errClockUnknown):
		return "check that the server sends a Date header and that it answers at all"
	case isHTTPForHTTPS(err):
		return "the server does not speak TLS: write http:// in --provisioning-server-url"
	case alertOf(err) != "":
		return alertHint(err)
	}
	if hint := statusHint(err); hint != "" {
		return hint
	}
	if errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) {
		return "check the network between this host and the server, and any firewall that drops packets"
	}
	return ""
}

func exchangeHint(err *ExchangeError) string {
	switch {
	case err.Status == http.StatusUnauthorized || err.Status == http.StatusForbidden:
		return "check --token or --token-file: the exchange does not accept it"
	case err.Status != 0 && err.Status < 500:
		return "check --token-exchange-url; Grafana's ends in /sign/access-token"
	case isCertificateError(err.Err):
		return certificateHint(err.Err)
	case isHTTPForHTTPS(err.Err):
		return "the exchange does not speak TLS: write http:// in --token-exchange-url"
	case alertOf(err.Err) != "":
		return alertHint(err.Err)
	}
	return "check --token-exchange-url and that the exchange is running"
}

func certificateHint(err error) string {
	var (
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &host):
		return "use a host name that the server's certificate holds"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "check the clock of this host and the dates of the server's certificate"
	}
	return "give the authority that signed the server's certificate with --tls-ca-file FILE"
}

// alertOf is what the other side said when it broke the handshake off, "" when it
// did not. Its type is hidden in crypto/tls.
func alertOf(err error) string {
	_, alert, _ := strings.Cut(err.Error(), "remote error: tls: ")
	return alert
}

// alertHint is for alerts, most of which are about the certificate of the client.
func alertHint(err error) string {
	switch alert := alertOf(err); {
	case strings.Contains(alert, "certificate required"):
		return "the server wants a client certificate of an authority that it knows: --tls-cert-file FILE --tls-key-file FILE"
	case strings.Contains(alert, "certificate"):
		return "the server does not take the certificate in --tls-cert-file, or has got none: check its dates and who signed it"
	}
	return "the server breaks the handshake off; it may want a client certificate: --tls-cert-file FILE --tls-key-file FILE"
}

func statusHint(err error) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "system:anonymous"):
		return "the server does not know who asks: give --token-file FILE, or a client certificate with --tls-cert-file and --tls-key-file"
	case apierrors.IsUnauthorized(err):
		return "check --token or --token-file: the server does not accept the token; where it knows its clients by certificate, check --tls-cert-file"
	case apierrors.IsForbidden(err):
		return "limit the watch to the namespace of the token with --namespace NAME, or give the token a role that may list, watch and update the resources there (in Grafana: Admin for jobs and history)"
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		return "the server is busy; the call is repeated by itself"
	case apierrors.IsNotFound(err):
		if status := statusOf(err); status != nil && (status.Details == nil || status.Details.Name == "") {
			return "the server does not know this kind: install the definitions with limpet crds | kubectl apply -f -, or check --provisioning-server-url"
		}
	}
	return ""
}

// isHTTPForHTTPS recognises an answer in plain text to a TLS handshake.
func isHTTPForHTTPS(err error) bool {
	var record tls.RecordHeaderError
	return errors.As(err, &record) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}
