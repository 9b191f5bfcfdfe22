package gittest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// SSHServer runs git upload-pack for one client key.
type SSHServer struct {
	t      testing.TB
	Root   string
	Config *ssh.ServerConfig
	ln     net.Listener
	done   chan struct{}
	stop   context.CancelFunc

	mu       sync.Mutex // guards all below
	conns    []net.Conn
	commands []string
	users    []string
	instead  func(ssh.Channel) // answers in git's place
}

// NewSSHServer starts a server with host keys until the end of the test.
func NewSSHServer(t testing.TB, root string, client ssh.PublicKey, hosts ...crypto.Signer) *SSHServer {
	t.Helper()
	s := &SSHServer{t: t, Root: root, done: make(chan struct{})}
	s.Config = &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.mu.Lock()
		s.users = append(s.users, c.User())
		s.mu.Unlock()
		if string(key.Marshal()) != string(client.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	for _, h := range hosts {
		s.Config.AddHostKey(Must[ssh.Signer](t)(ssh.NewSignerFromSigner(h)))
	}
	var err error
	if s.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.serve(ctx)
	t.Cleanup(func() {
		stop()
		s.ln.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		<-s.done
	})
	return s
}

func (s *SSHServer) serve(ctx context.Context) {
	defer close(s.done)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		raw, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, raw)
		s.mu.Unlock()
		wg.Go(func() {
			defer raw.Close()
			conn, channels, requests, err := ssh.NewServerConn(raw, s.Config)
			if err != nil {
				return
			}
			defer conn.Close()
			wg.Go(func() { ssh.DiscardRequests(requests) })
			for nc := range channels {
				ch, reqs, err := nc.Accept()
				if err != nil {
					return
				}
				wg.Go(func() { s.session(ctx, ch, reqs) })
			}
		})
	}
}

func (s *SSHServer) session(ctx context.Context, ch ssh.Channel, reqs <-chan *ssh.Request) {
	defer ch.Close()
	for req := range reqs {
		if req.Type != "exec" {
			req.Reply(false, nil)
			continue
		}
		var payload struct{ Command string }
		ssh.Unmarshal(req.Payload, &payload)
		req.Reply(true, nil)
		s.mu.Lock()
		s.commands = append(s.commands, payload.Command)
		instead := s.instead
		s.mu.Unlock()
		if instead != nil {
			instead(ch)
			return
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", payload.Command)
		cmd.Dir, cmd.Env = s.Root, GitEnv(s.Root)
		cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
		// Wait must not wait for the client to close its side: upload-pack ends
		// by itself, the copy into it ends when the channel is closed.
		in, err := cmd.StdinPipe()
		if err != nil || cmd.Start() != nil {
			return
		}
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			io.Copy(in, ch)
			in.Close()
		}()
		cmd.Wait()
		status := struct{ Status uint32 }{}
		if cmd.ProcessState != nil && !cmd.ProcessState.Success() {
			status.Status = uint32(cmd.ProcessState.ExitCode())
		}
		ch.SendRequest("exit-status", false, ssh.Marshal(&status))
		ch.Close()
		<-copied
		return
	}
}

// Said are the commands that clients have run.
func (s *SSHServer) Said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.commands, "\n")
}

// RemoteURL is the URL of a repository.
func (s *SSHServer) RemoteURL(name string) string { return "ssh://git@" + s.Addr() + "/" + name }

// Addr is host and port of the server.
func (s *SSHServer) Addr() string { return s.ln.Addr().String() }

// Users are those that clients have given.
func (s *SSHServer) Users() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.users)
}

// Forget forgets the commands so far.
func (s *SSHServer) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = nil
}

// Instead has f answer in git's place; nil = git does.
func (s *SSHServer) Instead(f func(ssh.Channel)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instead = f
}

// Known is a known_hosts line for the server's key.
func (s *SSHServer) Known(key crypto.Signer) []byte {
	pub, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	return []byte("# a comment\n" + xknownhosts.Line([]string{s.ln.Addr().String()}, pub) + "\n")
}

// SSHKeys are one key of each kind, made once.
var SSHKeys = sync.OnceValue(func() map[string]crypto.Signer {
	_, ed, err1 := ed25519.GenerateKey(rand.Reader)
	ec, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	long, err3 := rsa.GenerateKey(rand.Reader, 2048)
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(err)
	}
	return map[string]crypto.Signer{"ed25519": ed, "ecdsa": ec, "rsa": long}
})

// LargeRSA is a key of RSA with 8202 bits in PEM, made in no time: its factors are no primes, so it
// signs nothing.
func LargeRSA(t testing.TB) ([]byte, *rsa.PublicKey) {
	t.Helper()
	power := func(n int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(n)) }
	e, p1, q1 := big.NewInt(65537), power(4101), power(4100)
	p, q := new(big.Int).SetBit(p1, 0, 1), new(big.Int).SetBit(q1, 0, 1)
	d, n := new(big.Int).ModInverse(e, power(8201)), new(big.Int).Mul(p, q)
	der := Must[[]byte](t)(asn1.Marshal(struct{ Version, N, E, D, P, Q, Dp, Dq, Inverse *big.Int }{new(big.Int), n, e, d, p, q,
		new(big.Int).Mod(d, p1), new(big.Int).Mod(d, q1), new(big.Int).ModInverse(q, p)}))
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der}), &rsa.PublicKey{N: n, E: 65537}
}

// PrivateKey is a key in PEM, encrypted where there is a passphrase.
func PrivateKey(t testing.TB, key crypto.Signer, passphrase string) []byte {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}
