package transport

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// Git over ssh. go-git's own transport cannot be cancelled while it connects and reads the user's
// ssh_config and agent; this one takes its key and its known_hosts from the credentials alone, and
// nothing else.

// sshSession is one connection that runs git-upload-pack or git-receive-pack.
type sshSession struct {
	call    *Call
	conn    net.Conn
	client  *ssh.Client
	session *ssh.Session
	stdin   io.WriteCloser
	stdout  io.Reader
	stderr  remarks
	stop    func() bool // of the context that closes the connection
	asked   bool
	lost    *atomic.Bool // the connection has ended
}

// sshSession connects and starts a command of the host, with the path of the repository, and asks
// it to speak a version of the protocol.
func (c *Call) sshSession(command, argument string, v version) (*sshSession, error) {
	config, err := c.sshConfig()
	if err != nil {
		return nil, err
	}
	if err := c.pace(); err != nil {
		return nil, err
	}
	roots, err := c.Target.Creds.TLS() // for a proxy that speaks TLS
	if err != nil {
		return nil, giterr.Wrap(giterr.Auth, err, "")
	}
	raw, err := c.client.Options.Guard.Through(c.Ctx, c.Target.Creds.GetProxy(), roots, c.Addr.DialPort())
	if err != nil {
		return nil, err
	}
	s := &sshSession{call: c, conn: raw, lost: &atomic.Bool{}}
	s.stop = context.AfterFunc(c.Ctx, func() { raw.Close() })
	if err := s.start(config, command+" "+shellQuote(sshPath(c.Addr.Path))+argument, v); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *sshSession) start(config *ssh.ClientConfig, command string, v version) error {
	addr := s.call.Addr
	s.conn.SetDeadline(time.Now().Add(handshakeTimeout))
	conn, channels, requests, err := ssh.NewClientConn(countedConn{s.conn, s.call, s.lost}, addr.DialPort(), config)
	if err != nil {
		return s.call.sshError(err)
	}
	s.conn.SetDeadline(time.Time{})
	s.call.Target.Meter.Enter(transfer.Waiting)
	s.client = ssh.NewClient(conn, channels, requests)
	if s.session, err = s.client.NewSession(); err != nil {
		return err
	}
	if s.stdin, err = s.session.StdinPipe(); err != nil {
		return err
	}
	if s.stdout, err = s.session.StdoutPipe(); err != nil {
		return err
	}
	s.session.Stderr = &s.stderr
	if v == version2 {
		_ = s.session.Setenv("GIT_PROTOCOL", "version=2") // a host that does not take it speaks version 0
	}
	return s.session.Start(command)
}

// Run runs a command of the host over ssh, with the path of the repository and one more argument,
// and returns what it prints. said is what it wrote to stderr; data is nil when it has failed.
func (c *Call) Run(command, arg string) (data []byte, said string, err error) {
	c.SetBudget("answer of "+command, ErrorBody)
	s, err := c.sshSession(command, " "+arg, versionOld)
	if err != nil {
		return nil, "", err
	}
	defer s.Close()
	s.asked = true
	s.stdin.Close()
	if data, err = io.ReadAll(s.stdout); err != nil {
		return nil, "", err
	}
	if s.session.Wait() != nil {
		data = nil
	}
	return data, s.stderr.Text(), nil
}

// sshPath turns "/~/x" and "/~user/x" back into what the remote shell knows.
func sshPath(p string) string {
	if rest, ok := strings.CutPrefix(p, "/~/"); ok {
		return rest
	}
	if strings.HasPrefix(p, "/~") {
		return p[1:]
	}
	return p
}

// shellQuote is git's own quoting for the remote shell.
func shellQuote(s string) string {
	s = strings.ReplaceAll(s, "'", `'\''`)
	return "'" + strings.ReplaceAll(s, "!", `'\!'`) + "'"
}

// AdvertisedReferencesContext reads the refs that the server sends unasked.
func (s *sshSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	if err := refs.Decode(s.stdout); err != nil {
		if strings.Contains(err.Error(), sha256Format) {
			return nil, err // what the server says then is that it was left
		}
		if said := s.stderrText(); said != "" && !errors.Is(err, packp.ErrEmptyAdvRefs) {
			return nil, errors.New(serverSays + said)
		}
		return nil, err
	}
	if refs.IsEmpty() && !s.call.Pushes { // a push begins it
		return nil, transport.ErrEmptyRemoteRepository
	}
	return refs, nil
}

// stderrText waits for the end of a command that said nothing on stdout, for the reason that it
// gave on stderr.
func (s *sshSession) stderrText() string {
	s.stdin.Close()
	s.asked = true
	io.Copy(io.Discard, io.LimitReader(s.stdout, ErrorBody))
	_ = s.session.Wait() // its exit status says less than its words
	return s.stderr.Text()
}

// UploadPack sends the request; the answer is read from the connection.
func (s *sshSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	s.asked = true
	var out bytes.Buffer
	if err := errors.Join(req.UploadRequest.Encode(&out), req.UploadHaves.Encode(&out, false)); err != nil {
		return nil, err
	}
	out.WriteString("0009done\n")
	if _, err := s.stdin.Write(out.Bytes()); err != nil {
		return nil, err
	}
	res := packp.NewUploadPackResponse(req)
	if err := res.Decode(io.NopCloser(s)); err != nil {
		return nil, s.lostOr(fmt.Errorf("error decoding upload-pack response: %w", err))
	}
	return res, nil
}

// Close ends the conversation, politely when nothing was asked for.
func (s *sshSession) Close() error {
	if s.session != nil {
		if !s.asked {
			io.WriteString(s.stdin, "0000")
		}
		s.stdin.Close()
		s.session.Close()
	}
	if s.client != nil {
		s.client.Close()
		s.client.Wait()
	}
	s.stop()
	s.conn.Close()
	return nil
}

// countedConn counts what comes over the connection.
type countedConn struct {
	net.Conn
	c    *Call
	lost *atomic.Bool
}

func (n countedConn) Read(p []byte) (int, error) {
	k, err := n.Conn.Read(p)
	if lerr := n.c.count(k); lerr != nil {
		n.c.found.Store(giterr.Wrap(giterr.TooLarge, lerr, "")) // the ssh library reports a lost connection
		return 0, lerr
	}
	if err != nil {
		n.lost.Store(true)
	}
	return k, err
}

// Read reads what the remote command prints. The ssh library tells of a lost
// connection as of a command that has ended well.
func (s *sshSession) Read(p []byte) (int, error) {
	n, err := s.stdout.Read(p)
	if err == io.EOF && s.lost.Load() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c *Call) sshConfig() (*ssh.ClientConfig, error) {
	creds := c.Target.Creds
	if creds == nil || len(creds.SSHKey) == 0 {
		return nil, giterr.New(giterr.Auth, "ssh needs a private key", "give the repository credentials with identity and known_hosts")
	}
	signer, err := sshSigner(creds.SSHKey, creds.SSHPassphrase)
	if err != nil {
		return nil, err
	}
	good := ssh.SupportedAlgorithms()
	config := &ssh.ClientConfig{
		Config:            ssh.Config{KeyExchanges: good.KeyExchanges, Ciphers: good.Ciphers, MACs: good.MACs},
		User:              cmp.Or(c.Addr.User, "git"),
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		ClientVersion:     "SSH-2.0-limpet",
		HostKeyAlgorithms: hostKeyAlgorithms,
	}
	return config, c.hostKeys(config)
}

// sshSigner reads a private key; an rsa key signs with SHA-2 only. Its errors say nothing of the
// key's content.
func sshSigner(key []byte, passphrase string) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(key)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		if passphrase == "" {
			return nil, giterr.New(giterr.Auth, "the ssh key is encrypted and there is no passphrase",
				"give it as the key password beside identity")
		}
		if signer, err = ssh.ParsePrivateKeyWithPassphrase(key, []byte(passphrase)); err != nil {
			return nil, giterr.New(giterr.Auth, "the passphrase does not open the ssh key", "check the key password beside identity")
		}
	}
	if err != nil {
		return nil, giterr.New(giterr.Auth, "the ssh key cannot be read", "identity has to hold a private key in PEM or OpenSSH form")
	}
	if public, ok := signer.PublicKey().(ssh.CryptoPublicKey); ok {
		if key, ok := public.CryptoPublicKey().(*rsa.PublicKey); ok && key.N.BitLen() > auth.MaxRSA {
			return nil, giterr.New(giterr.Auth, fmt.Sprintf("the ssh key is of RSA with more than %d bits", auth.MaxRSA),
				"ssh-keygen -t ed25519 makes a better one")
		}
	}
	if many, ok := signer.(ssh.AlgorithmSigner); ok && signer.PublicKey().Type() == ssh.KeyAlgoRSA {
		return ssh.NewSignerWithAlgorithms(many, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
	}
	return signer, nil
}

// hostKeys makes config accept the keys that known_hosts names and no other.
func (c *Call) hostKeys(config *ssh.ClientConfig) error {
	host := c.Addr.DialPort()
	known := bytes.TrimSpace(c.Target.Creds.KnownHosts)
	check := ssh.HostKeyCallback(func(string, net.Addr, ssh.PublicKey) error { return &xknownhosts.KeyError{} })
	if len(known) > 0 {
		// The library reads files only. known_hosts is no secret.
		f, err := os.CreateTemp(c.client.dir, pack.TempPrefix)
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		_, err = fmt.Fprintf(f, "%s\n", known)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		db, err := knownhosts.NewDB(f.Name())
		if err != nil {
			return giterr.New(giterr.Auth, "known_hosts cannot be read", "make it with: ssh-keyscan "+c.Addr.Host)
		}
		check = db.HostKeyCallback()
		config.HostKeyAlgorithms = secureHostKeys(db.HostKeyAlgorithms(host))
	}
	config.HostKeyCallback = func(name string, remote net.Addr, key ssh.PublicKey) error {
		err := check(name, remote, key)
		if err == nil {
			return nil
		}
		print := key.Type() + " " + ssh.FingerprintSHA256(key)
		text, hint := "host key verification failed: it is "+print+", not the one in known_hosts",
			"somebody may be in between; if the server was changed, replace its line in known_hosts"
		if changed, ok := errors.AsType[*xknownhosts.KeyError](err); ok && len(changed.Want) == 0 {
			text = "host key verification failed: " + print + " is not in known_hosts"
			hint = "if it is the right one, add this line to known_hosts: " + xknownhosts.Line([]string{name}, key)
		} else if _, revoked := errors.AsType[*xknownhosts.RevokedError](err); revoked {
			text, hint = "host key verification failed: "+print+" is marked as revoked", "ask who runs the server"
		}
		return c.problem(giterr.Auth, 0, text, hint)
	}
	return nil
}

// sshError distinguishes a refused key from a broken connection.
func (c *Call) sshError(err error) error {
	text := err.Error()
	switch {
	case c.found.Load() != nil:
		return c.found.Load()
	case strings.Contains(text, "no common public key signature algorithm"):
		return giterr.New(giterr.Auth, "the server takes an rsa key only with SHA-1, which is not safe",
			"use an ed25519 key, or update the server")
	case strings.Contains(text, "unable to authenticate"):
		return giterr.New(giterr.Auth, "permission denied (publickey) for "+cmp.Or(c.Addr.User, "git")+"@"+c.Addr.Host,
			"add the public key to the repository, and check the user in the url")
	}
	if none, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err); ok {
		kinds := strings.Join(none.RequestedAlgorithms, ", ")
		if containsAny(kinds, ssh.SupportedAlgorithms().HostKeys) { // what is left out here are those of other keys
			return giterr.New(giterr.Auth, "the server has no host key of the kinds in known_hosts",
				"make known_hosts anew with: ssh-keyscan "+c.Addr.Host)
		}
		return giterr.New(giterr.Protocol, "for "+none.What+" the server has only what is not safe any more: "+kinds, "update its ssh server")
	}
	if c.Ctx.Err() != nil {
		return fmt.Errorf("ssh: %w", err)
	}
	return giterr.Wrap(giterr.Unreachable, fmt.Errorf("the server ends the ssh handshake, or speaks something else: %w", err),
		"it is retried later; check host and port of the url")
}

// hostKeyAlgorithms are asked for when known_hosts names none of a host, in this
// order: the line that is printed then is for the first that it has.
//
// What is spoken over ssh. The library's own defaults still take key exchanges, MACs and signatures
// with SHA-1 when a server has nothing better; here they are left out, so that a man in the middle
// cannot bring both sides down to them.
var hostKeyAlgorithms = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512,
	ssh.KeyAlgoRSASHA256}

// secureHostKeys are the algorithms for the keys that known_hosts names of a host: an
// ssh-rsa line stands for a key, which signs with SHA-2.
func secureHostKeys(named []string) []string {
	weak := ssh.InsecureAlgorithms().HostKeys
	kinds := slices.DeleteFunc(slices.Clone(named), func(kind string) bool { return slices.Contains(weak, kind) })
	if len(kinds) == 0 {
		return hostKeyAlgorithms
	}
	return kinds
}
