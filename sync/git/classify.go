package git

import (
	"compress/flate"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"limpet/sync/reach"
)

// classes are asked in order; the first that knows an error names its kind.
var classes = []func(*call, error) *Error{ofPush, ofStore, ofServer, ofWay, ofTLS, ofNetwork, ofDisk, ofProtocol}

// guardHint is what to do about an address that is not dialled.
const guardHint = "Git hosts are never at link-local or metadata addresses; --git-private-networks says which private ones may be used"

// ofWay knows what is in between: addresses that are not dialled, and proxies.
func ofWay(c *call, err error) *Error {
	if errors.Is(err, reach.ErrForbidden) {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op != "proxyconnect" {
			err = op.Err
		}
		return &Error{Kind: Refused, Err: err, Hint: guardHint}
	}
	if answer, ok := errors.AsType[*reach.ProxyError](err); ok {
		return &Error{Kind: Unreachable, Err: answer, Hint: c.proxyHint()}
	}
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "proxyconnect" && !strings.HasPrefix(op.Op, "socks") {
		return nil
	}
	return &Error{Kind: Unreachable, Err: fmt.Errorf("no way through the proxy: %w", op.Err), Hint: c.proxyHint()}
}

// proxyHint says where the proxy of the call is set.
func (c *call) proxyHint() string {
	if p := c.remote.Creds.Way(); p != nil {
		return "check proxyAddress, proxyUsername and proxyPassword in " + c.remote.Creds.Source + ": " + p.String()
	}
	return "check HTTPS_PROXY of this process"
}

// ofStore knows damage, in what came and in what is there.
func ofStore(_ *call, err error) *Error {
	switch {
	case errors.Is(err, errBadPack):
		return &Error{Kind: Corrupt, Err: err, Hint: "nothing was kept; try again, and check the repository on the server with git fsck when it stays"}
	case errors.Is(err, errDamaged), errors.Is(err, errMissing):
		return &Error{Kind: Corrupt, Err: err, Hint: "the mirror is made anew by the next fetch"}
	}
	return nil
}

// ofServer knows what Git servers say in the protocol.
func ofServer(c *call, err error) *Error {
	text := err.Error()
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		text = line.Text
		err = errors.New(serverSays + text)
	}
	if why, ok := strings.CutPrefix(text, sidebandError); ok {
		text, err = why, errors.New("the server gives up: "+why)
		if strings.Contains(why, "corrupt") {
			return &Error{Kind: Corrupt, Err: err, Hint: "check the repository on the server with git fsck"}
		}
	}
	switch {
	case errors.Is(err, transport.ErrEmptyRemoteRepository), errors.Is(err, packp.ErrEmptyAdvRefs):
		return &Error{Kind: Empty, Err: errors.New("the repository is empty"), Hint: "push a first commit to it"}
	case strings.Contains(text, "not our ref"), strings.Contains(text, "upload-pack: not our"):
		return &Error{Kind: Moved, Err: errors.New("the commit is not on any branch any more"), Hint: "resolve the branch again"}
	case errors.Is(err, transport.ErrRepositoryNotFound), saysNotFound(text):
		return &Error{Kind: NotFound, Err: errors.New("no repository there"), Hint: c.notFoundHint()}
	case saysDenied(text):
		return &Error{Kind: Auth, Err: err, Hint: "check what these credentials may read"}
	case err.Error() != text: // it was the server that spoke
		return &Error{Kind: Protocol, Err: err, Hint: "its own log may say more"}
	}
	return nil
}

// serverSays begins the text of errors whose words are the server's.
const serverSays = "the server says: "

// sidebandError begins the text of go-git's errors for the server's last words.
const sidebandError = "unexpected error: "

func (c *call) notFoundHint() string {
	if c.remote.Creds.Empty() {
		return "check the url; a private repository needs credentials"
	}
	return "check the url, and that these credentials may read it"
}

func saysNotFound(text string) bool {
	text = strings.ToLower(text)
	for _, s := range []string{"repository not found", "does not appear to be a git repository", "no such repository",
		"repository does not exist", "project you were looking for could not be found", "not exported"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

func saysDenied(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "permission denied") || strings.Contains(text, "access denied") || strings.Contains(text, "not authorized")
}

// ofTLS knows certificates.
func ofTLS(c *call, err error) *Error {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &unknown):
		return &Error{Kind: Unreachable, Err: errors.New("its certificate is signed by an unknown authority"), Hint: "give the authority's certificate as ca.crt beside the credentials, or in a rule of git-credentials; openssl s_client -showcerts -connect " + c.addr.DialPort() + " shows it"}
	case errors.As(err, &host):
		return &Error{Kind: Unreachable, Err: errors.New("its certificate is for another host than " + host.Host + named(host.Certificate)), Hint: "check the host in the url"}
	case errors.As(err, &invalid):
		why := "its certificate is not valid"
		if cert := invalid.Cert; invalid.Reason == x509.Expired && cert != nil {
			why = "its certificate has expired, on " + cert.NotAfter.UTC().Format(time.DateOnly)
			if time.Now().Before(cert.NotBefore) {
				why = "its certificate is not valid before " + cert.NotBefore.UTC().Format(time.DateOnly)
			}
		}
		return &Error{Kind: Unreachable, Err: errors.New(why), Hint: "check the clock of this host, then the certificate"}
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return &Error{Kind: Protocol, Err: errors.New("it does not speak TLS"), Hint: "check scheme and port of the url"}
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls:"):
		return &Error{Kind: Auth, Err: err, Hint: "the server may want a client certificate: tls.crt and tls.key"}
	}
	return nil
}

// named are the hosts that a certificate is for.
func named(cert *x509.Certificate) string {
	if cert == nil || len(cert.DNSNames) == 0 {
		return ""
	}
	return ": " + clean(strings.Join(cert.DNSNames[:min(len(cert.DNSNames), 3)], ", "), 200)
}

// ofNetwork knows a network that does not carry.
func ofNetwork(_ *call, err error) *Error {
	var dns *net.DNSError
	var op *net.OpError
	var nerr net.Error
	switch {
	case errors.As(err, &dns):
		return &Error{Kind: Unreachable, Err: errors.New("the host name is not known here: " + dns.Err), Hint: "check the host in the url and the name server"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Error{Kind: Unreachable, Err: errors.New("nothing listens there"), Hint: "check host and port of the url"}
	case errors.As(err, &nerr) && nerr.Timeout():
		return &Error{Kind: Timeout, Err: errors.New("no connection in time")}
	case errors.As(err, &op), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return &Error{Kind: Unreachable, Err: err}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &Error{Kind: Unreachable, Err: errors.New("the connection ended too early")}
	}
	return nil
}

// ofDisk knows a disk that takes nothing.
func ofDisk(c *call, err error) *Error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &Error{Kind: Unknown, Err: err, Hint: "the disk of " + c.m.dir + " is full"}
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return &Error{Kind: Unknown, Err: err, Hint: "make " + c.m.dir + " writable"}
	}
	return nil
}

// ofProtocol knows answers that are not Git's.
func ofProtocol(_ *call, err error) *Error {
	var data *packp.ErrUnexpectedData
	switch {
	case errors.Is(err, transport.ErrEmptyUploadPackRequest):
		return &Error{Kind: Protocol, Err: errors.New("the server sent no pack"), Hint: "its own log may say why"}
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, new(flate.CorruptInputError)):
		return &Error{Kind: Protocol, Err: errors.New("its answer is said to be gzip and is not"), Hint: "look at what stands between: a proxy or a cache"}
	case errors.Is(err, pktline.ErrInvalidPktLen), errors.As(err, &data), errors.Is(err, packp.ErrEmptyInput),
		strings.Contains(err.Error(), "error decoding upload-pack response"), strings.Contains(err.Error(), "invalid pkt-len"),
		strings.Contains(err.Error(), "http redirect"):
		return &Error{Kind: Protocol, Err: err, Hint: "check that the url is that of a Git repository"}
	}
	return nil
}
