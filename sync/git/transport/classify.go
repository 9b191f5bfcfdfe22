package transport

import (
	"cmp"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/netx"
)

// classifiers are asked in order; the first that knows an error names its kind.
var classifiers = []func(*Call, error) *giterr.Error{classifyPush, classifyStore, classifyServer, classifyRoute, classifyTLS,
	classifyNetwork, classifyDisk, classifyProtocol}

// guardHint is what to do about an address that is not dialled.
const guardHint = "Git hosts are never at link-local or metadata addresses; --git-private-networks says which private ones may be used"

// classifyRoute knows what is in between: addresses that are not dialled, and proxies.
func classifyRoute(c *Call, err error) *giterr.Error {
	op, _ := errors.AsType[*net.OpError](err)
	if errors.Is(err, netx.ErrForbidden) {
		if op != nil && op.Op != "proxyconnect" {
			err = op.Err
		}
		return giterr.Wrap(giterr.Refused, err, guardHint)
	}
	if variable, ok := errors.AsType[*netx.EnvironmentError](err); ok {
		return giterr.Wrap(giterr.Unreachable, variable, "correct "+variable.Name+" and start the agent again")
	}
	if answer, ok := errors.AsType[*netx.ProxyError](err); ok {
		return giterr.Wrap(giterr.Unreachable, answer, c.proxyHint())
	}
	if op == nil || op.Op != "proxyconnect" && !strings.HasPrefix(op.Op, "socks") {
		return nil
	}
	return giterr.Wrap(giterr.Unreachable, fmt.Errorf("no way through the proxy: %w", op.Err), c.proxyHint())
}

// proxyHint describes where the proxy of the call is set.
func (c *Call) proxyHint() string {
	switch p := c.Target.Creds.GetProxy(); {
	case p != nil && p.Place != "":
		return "check address, username and password in " + p.Place + ": " + p.String()
	case p != nil:
		return "check proxyAddress, proxyUsername and proxyPassword in " + c.Target.Creds.Source + ": " + p.String()
	}
	return "check HTTPS_PROXY of this process"
}

// classifyStore knows damage, in what came and in what is there.
func classifyStore(_ *Call, err error) *giterr.Error {
	switch {
	case errors.Is(err, pack.ErrBadPack):
		return giterr.Wrap(giterr.Corrupt, err,
			"nothing was kept; try again, and check the repository on the server with git fsck when it stays")
	case errors.Is(err, pack.ErrDamaged), errors.Is(err, pack.ErrMissing):
		return giterr.Wrap(giterr.Corrupt, err, "the mirror is made anew by the next fetch")
	}
	return nil
}

// classifyServer knows what Git servers say in the protocol.
func classifyServer(c *Call, err error) *giterr.Error {
	text, spoke := err.Error(), false
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		text, spoke, err = line.Text, true, errors.New(serverSays+line.Text)
	}
	if why, ok := strings.CutPrefix(text, sidebandError); ok {
		text, spoke, err = why, true, errors.New("the server gives up: "+why)
		if strings.Contains(why, "corrupt") {
			return giterr.Wrap(giterr.Corrupt, err, "check the repository on the server with git fsck")
		}
	}
	switch text = strings.ToLower(text); {
	case strings.Contains(text, sha256Format):
		return giterr.SHA256
	case errors.Is(err, transport.ErrEmptyRemoteRepository), errors.Is(err, packp.ErrEmptyAdvRefs):
		return giterr.New(giterr.Empty, "the repository is empty", "push a first commit to it")
	case strings.Contains(text, "not our ref"):
		return giterr.New(giterr.Moved, "the commit is not on any branch any more", "resolve the branch again")
	case errors.Is(err, transport.ErrRepositoryNotFound), containsAny(text, []string{"repository not found",
		"does not appear to be a git repository", "no such repository", "repository does not exist",
		"project you were looking for could not be found", "not exported"}):
		return giterr.New(giterr.NotFound, "repository not found", c.notFoundHint())
	case containsAny(text, []string{"permission denied", "access denied", "not authorized"}):
		return giterr.Wrap(giterr.Auth, err, "check what these credentials may read")
	case spoke:
		return giterr.Wrap(giterr.Protocol, err, "its own log may say more")
	}
	return nil
}

// sha256Format is the capability of a repository whose hashes cannot be read.
const sha256Format = "object-format=sha256"

func containsAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// serverSays begins the text of errors whose words are the server's.
const serverSays = "the server says: "

// sidebandError begins the text of go-git's errors for the server's last words.
const sidebandError = "unexpected error: "

func (c *Call) notFoundHint() string {
	if c.Target.Creds.Empty() {
		return "check the url; a private repository needs credentials"
	}
	return "check the url, and that these credentials may read it"
}

// classifyTLS knows certificates.
func classifyTLS(c *Call, err error) *giterr.Error {
	fault, ok := netx.TLSFaultOf(err, c.asked())
	if !ok {
		return nil
	}
	e := giterr.New(giterr.Unreachable, fault.Why, fault.Next)
	switch {
	case fault.Plain:
		e.Kind = giterr.Protocol
	case fault.Client:
		e.Kind, e.Hint = giterr.Auth, cmp.Or(c.CertificateHint(c.Addr.HostPort()), fault.Next)
	}
	return e
}

// CertificateHint is what to do about the client certificate that a host asks for,
// "" when it asks for none or has been given one.
func (c *Call) CertificateHint(host string) string { return c.client.asked.Hint(c.asks(host)) }

// asks is the key of the credentials and a host, for netx.Asked.
func (c *Call) asks(host string) string { return c.Target.Creds.TransportKey() + " " + host }

// asked is the address of the last request, which is not that of the repository for Git LFS on
// another host.
func (c *Call) asked() string { return cmp.Or(c.peer, c.Addr.DialPort()) }

// classifyNetwork knows a network that does not carry.
func classifyNetwork(c *Call, err error) *giterr.Error {
	var dns *net.DNSError
	var nerr net.Error
	lost := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case errors.As(err, &dns) && !dns.IsNotFound:
		return giterr.New(giterr.Unreachable, "cannot resolve "+dns.Name+": "+dns.Err, "check the name server")
	case dns != nil:
		return giterr.New(giterr.Unreachable, "no such host: "+dns.Name, "check the host in the url and the name server")
	case errors.Is(err, syscall.ECONNREFUSED):
		return giterr.New(giterr.Unreachable, "connection refused: "+c.asked(), "check host and port of the url")
	case errors.As(err, &nerr) && nerr.Timeout():
		return giterr.New(giterr.Timeout, "connection timed out: "+c.asked(), "")
	case (lost || ended) && c.CertificateHint(c.Addr.HostPort()) != "": // its alert was lost on the way
		return giterr.New(giterr.Auth, "connection closed by "+c.asked(), c.CertificateHint(c.Addr.HostPort()))
	case errors.As(err, new(*net.OpError)), lost, errors.Is(err, net.ErrClosed):
		return giterr.Wrap(giterr.Unreachable, err, "")
	case ended:
		return giterr.New(giterr.Unreachable, "the connection ended too early", "")
	}
	return nil
}

// classifyDisk knows a disk that takes nothing.
func classifyDisk(c *Call, err error) *giterr.Error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return giterr.Wrap(giterr.Unknown, err, "the disk of "+c.client.dir+" is full")
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return giterr.Wrap(giterr.Unknown, err, "make "+c.client.dir+" writable")
	}
	return nil
}

// classifyProtocol knows answers that are not Git's.
func classifyProtocol(_ *Call, err error) *giterr.Error {
	switch {
	case errors.Is(err, transport.ErrEmptyUploadPackRequest):
		return giterr.New(giterr.Protocol, "the server sent no pack", "its own log may say why")
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, new(flate.CorruptInputError)):
		return giterr.New(giterr.Protocol, "its answer is said to be gzip and is not", "look at what stands between: a proxy or a cache")
	case errors.Is(err, pktline.ErrInvalidPktLen), errors.As(err, new(*packp.ErrUnexpectedData)), errors.Is(err, packp.ErrEmptyInput),
		strings.Contains(err.Error(), "error decoding upload-pack response"), strings.Contains(err.Error(), "invalid pkt-len"),
		strings.Contains(err.Error(), "http redirect"):
		return giterr.Wrap(giterr.Protocol, err, "check that the url is that of a Git repository")
	}
	return nil
}
