package git

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/git/gittest"
	"limpet/sync/git/pack"
)

// sshServer runs git upload-pack for one client key.
type sshServer struct {
	t      *testing.T
	root   string
	config *ssh.ServerConfig
	ln     net.Listener
	done   chan struct{}
	stop   context.CancelFunc

	mu       sync.Mutex // guards all below
	conns    []net.Conn
	commands []string
	users    []string
	instead  func(ssh.Channel) // answers in git's place
}

func newSSHServer(t *testing.T, root string, client ssh.PublicKey, hosts ...crypto.Signer) *sshServer {
	t.Helper()
	s := &sshServer{t: t, root: root, done: make(chan struct{})}
	s.config = &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.mu.Lock()
		s.users = append(s.users, c.User())
		s.mu.Unlock()
		if string(key.Marshal()) != string(client.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	for _, h := range hosts {
		s.config.AddHostKey(gittest.Must[ssh.Signer](t)(ssh.NewSignerFromSigner(h)))
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

func (s *sshServer) serve(ctx context.Context) {
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
			conn, channels, requests, err := ssh.NewServerConn(raw, s.config)
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

func (s *sshServer) session(ctx context.Context, ch ssh.Channel, reqs <-chan *ssh.Request) {
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
		cmd.Dir, cmd.Env = s.root, gittest.GitEnv(s.root)
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

func (s *sshServer) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.commands, "\n")
}

// remote is the URL of a repository, scp-like when the port would allow it.
func (s *sshServer) remote(name string, creds *auth.Credentials) Remote {
	return Remote{URL: "ssh://git@" + s.ln.Addr().String() + "/" + name, Creds: creds}
}

// known is a known_hosts line for the server's key.
func (s *sshServer) known(key crypto.Signer) []byte {
	pub, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	return []byte("# a comment\n" + xknownhosts.Line([]string{s.ln.Addr().String()}, pub) + "\n")
}

// sshKeys are one key of each kind, made once.
var sshKeys = sync.OnceValue(func() map[string]crypto.Signer {
	_, ed, err1 := ed25519.GenerateKey(rand.Reader)
	ec, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	long, err3 := rsa.GenerateKey(rand.Reader, 2048)
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(err)
	}
	return map[string]crypto.Signer{"ed25519": ed, "ecdsa": ec, "rsa": long}
})

func private(t *testing.T, key crypto.Signer, passphrase string) []byte {
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

func TestSSH(t *testing.T) {
	gittest.Quiet(t)
	root := t.TempDir()
	o := gittest.NewOrigin(t, root, "team/it's a \"site\".git")
	first := o.Commit("one", map[string]string{"a.json": gittest.Dashboard("a", 1, 30)})
	keys := sshKeys()
	for name, key := range keys {
		t.Run(name, func(t *testing.T) {
			pub, err := ssh.NewPublicKey(key.Public())
			if err != nil {
				t.Fatal(err)
			}
			s := newSSHServer(t, root, pub, key)
			m := openMirrors(t, Options{})
			// known_hosts has another key kind for the host too.
			creds := &auth.Credentials{SSHKey: private(t, key, gittest.Secret), SSHPassphrase: gittest.Secret, KnownHosts: s.known(key)}
			r := s.remote("ignored", creds)
			r.URL = "ssh://git@" + s.ln.Addr().String() + filepath.ToSlash(root) + "/team/it's%20a%20%22site%22.git"
			ref, st := syncRef(t, m, r, "")
			if ref.Hash != first || !st.Full {
				t.Fatalf("%+v %+v", ref, st)
			}
			second := o.Commit("two", map[string]string{"a.json": gittest.Dashboard("a", 2, 30)})
			ref, st = syncRef(t, m, r, "main")
			if ref.Hash != second || st.Full || st.Bytes > 8000 || st.Bytes == 0 {
				t.Fatalf("%+v %+v", ref, st)
			}
			if got := content(t, m, r, second, ""); got["a.json"] != gittest.Dashboard("a", 2, 30) {
				t.Fatal("content differs")
			}
			fsck(t, m, r)
			o.Git("reset", "-q", "--hard", first)
			o.Git("push", "-q", "-f", "origin", "HEAD")
		})
	}
}

func TestSSHRefuses(t *testing.T) {
	gittest.Quiet(t)
	root := t.TempDir()
	gittest.NewOrigin(t, root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	gittest.Git(t, root, nil, "init", "-q", "--bare", "empty.git")
	keys := sshKeys()
	key, host, other := keys["ed25519"], keys["ecdsa"], keys["rsa"]
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public()))
	hostPub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(host.Public()))
	s := newSSHServer(t, root, pub, host)
	site := filepath.ToSlash(root)[1:] + "/site.git"
	good := auth.Credentials{SSHKey: private(t, key, ""), KnownHosts: s.known(host)}
	with := func(f func(*auth.Credentials)) *auth.Credentials {
		c := good
		f(&c)
		return &c
	}
	another := gittest.Must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	cases := []struct {
		name, path string
		creds      *auth.Credentials
		kind       Kind
		says       []string
	}{
		{"good", site, &good, "", nil},
		{"no credentials", site, nil, Auth, []string{"private key"}},
		{"no known_hosts", site, with(func(c *auth.Credentials) { c.KnownHosts = nil }), Auth,
			[]string{ssh.FingerprintSHA256(hostPub), "add this line to known_hosts", xknownhosts.Line([]string{s.ln.Addr().String()}, hostPub)}},
		{"another host in known_hosts", site, with(func(c *auth.Credentials) {
			c.KnownHosts = []byte(xknownhosts.Line([]string{"git.example.com"}, hostPub))
		}), Auth, []string{"add this line"}},
		{"another key in known_hosts", site, with(func(c *auth.Credentials) { c.KnownHosts = s.known(another) }), Auth, []string{"not the one in known_hosts", "in between"}},
		{"another kind of key in known_hosts", site, with(func(c *auth.Credentials) { c.KnownHosts = s.known(other) }), Auth, []string{"kinds in known_hosts"}},
		{"revoked", site, with(func(c *auth.Credentials) {
			c.KnownHosts = []byte("@revoked " + strings.Split(string(s.known(host)), "\n")[1])
		}), Auth, []string{"revoked"}},
		{"nonsense in known_hosts", site, with(func(c *auth.Credentials) { c.KnownHosts = []byte("host ssh-rsa !!") }), Auth, []string{"cannot be read"}},
		{"another client key", site, with(func(c *auth.Credentials) { c.SSHKey = private(t, other, "") }), Auth, []string{"refuses the ssh key"}},
		{"no key at all", site, with(func(c *auth.Credentials) { c.SSHKey = []byte(gittest.Secret) }), Auth, []string{"cannot be read"}},
		{"locked key", site, with(func(c *auth.Credentials) { c.SSHKey = private(t, key, gittest.Secret) }), Auth, []string{"no passphrase"}},
		{"wrong passphrase", site, with(func(c *auth.Credentials) { c.SSHKey, c.SSHPassphrase = private(t, key, gittest.Secret), "CANARY2" }), Auth, []string{"does not open"}},
		{"no such repository", "nowhere/x.git", &good, NotFound, nil},
		{"empty repository", filepath.ToSlash(root)[1:] + "/empty.git", &good, Empty, nil},
	}
	m := openMirrors(t, Options{})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := m.Resolve(t.Context(), s.remote(c.path, c.creds), gitref.Branch(""))
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			gittest.ErrorIs(t, err, c.kind, c.says...)
		})
	}
	if left := gittest.Glob(t, m.dir, "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for line := range strings.SplitSeq(s.said(), "\n") {
		if !strings.HasPrefix(line, "git-upload-pack '") {
			t.Errorf("the server was told %q", line)
		}
	}
}

// Limits hold over ssh as well.
func TestSSHLimits(t *testing.T) {
	gittest.Quiet(t)
	root := t.TempDir()
	var text strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&text, "%x", i*i*7919)
	}
	gittest.NewOrigin(t, root, "site.git").Commit("one", map[string]string{"a.json": text.String()})
	key := sshKeys()["ed25519"]
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public()))
	s := newSSHServer(t, root, pub, key)
	m := openMirrors(t, Options{})
	r := s.remote(filepath.ToSlash(root)[1:]+"/site.git", &auth.Credentials{SSHKey: private(t, key, ""), KnownHosts: s.known(key)})
	ref, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	r.Limits = pack.Limits{PackBytes: 20_000}
	_, err = m.Fetch(t.Context(), r, ref)
	gittest.ErrorIs(t, err, TooLarge, "pack of")
	r.Limits = pack.Limits{ObjectBytes: 1000}
	_, err = m.Fetch(t.Context(), r, ref)
	gittest.ErrorIs(t, err, TooLarge, "object of")
	r.Limits = pack.Limits{RefsBytes: 100}
	_, err = m.Resolve(t.Context(), r, gitref.Branch(""))
	gittest.ErrorIs(t, err, TooLarge, "list of refs")
	r.Limits = pack.Limits{}
	if _, err = m.Fetch(t.Context(), r, ref); err != nil {
		t.Fatal(err)
	}
	fsck(t, m, r)
}

// A host with keys of several kinds is asked for the kind that is known.
func TestSSHChoosesTheKnownKind(t *testing.T) {
	gittest.Quiet(t)
	root := t.TempDir()
	gittest.NewOrigin(t, root, "site.git").Commit("one", map[string]string{"a.json": "1"})
	keys := sshKeys()
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(keys["ed25519"].Public()))
	s := newSSHServer(t, root, pub, keys["ed25519"], keys["ecdsa"], keys["rsa"])
	m := openMirrors(t, Options{})
	for name, key := range keys {
		r := s.remote(filepath.ToSlash(root)[1:]+"/site.git", &auth.Credentials{SSHKey: private(t, keys["ed25519"], ""), KnownHosts: s.known(key)})
		if _, err := m.Resolve(t.Context(), r, gitref.Branch("")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Paths and users reach the server as git would send them.
func TestSSHPathsAndUsers(t *testing.T) {
	gittest.Quiet(t)
	keys := sshKeys()
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(keys["ed25519"].Public()))
	s := newSSHServer(t, t.TempDir(), pub, keys["ed25519"])
	s.instead = func(ch ssh.Channel) { io.WriteString(ch.Stderr(), "ERROR: Repository not found.\x1b[2J\n") }
	m := openMirrors(t, Options{})
	creds := &auth.Credentials{SSHKey: private(t, keys["ed25519"], ""), KnownHosts: s.known(keys["ed25519"])}
	host := s.ln.Addr().String()
	for url, want := range map[string]string{
		"ssh://" + host + "/a/b.git":      "git-upload-pack '/a/b.git'",
		"ssh://ann@" + host + "/~/b.git":  "git-upload-pack 'b.git'",
		"ssh://ann@" + host + "/~bob/b":   "git-upload-pack '~bob/b'",
		"ssh://" + host + "/it's/$(id)!x": `git-upload-pack '/it'\''s/$(id)'\!'x'`,
	} {
		_, err := m.Resolve(t.Context(), Remote{URL: url, Creds: creds}, gitref.Branch(""))
		gittest.ErrorIs(t, err, NotFound)
		if said := s.said(); !strings.HasSuffix(said, want) {
			t.Errorf("%s: the server was told %q, want %q", url, said, want)
		}
	}
	s.mu.Lock()
	users := fmt.Sprint(s.users)
	s.mu.Unlock()
	if !strings.Contains(users, "git") || !strings.Contains(users, "ann") {
		t.Errorf("users %s", users)
	}
}

func TestSSHSilence(t *testing.T) {
	gittest.Quiet(t)
	keys := sshKeys()
	key := keys["ed25519"]
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public()))
	s := newSSHServer(t, t.TempDir(), pub, key)
	release := make(chan struct{})
	s.instead = func(ch ssh.Channel) { <-release }
	creds := &auth.Credentials{SSHKey: private(t, key, ""), KnownHosts: s.known(key)}
	mute := gittest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")) // accepts and says nothing
	defer mute.Close()
	for _, addr := range []string{s.ln.Addr().String(), mute.Addr().String()} {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		began := time.Now()
		_, err := openMirrors(t, Options{}).Resolve(ctx, Remote{URL: "ssh://" + addr + "/x", Creds: creds}, gitref.Branch(""))
		cancel()
		gittest.ErrorIs(t, err, Timeout)
		_, err = openMirrors(t, Options{Stall: 100 * time.Millisecond}).Resolve(t.Context(), Remote{URL: "ssh://" + addr + "/x", Creds: creds}, gitref.Branch(""))
		gittest.ErrorIs(t, err, Timeout, "silent")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%s: %s", addr, took)
		}
	}
	close(release)
}
