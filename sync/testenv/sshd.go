package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"limpet/sync/testenv/gittest"
)

// SSHOptions say what an ssh server is like.
type SSHOptions struct {
	HostKeys []SSHKey // at least one
	Accept   []SSHKey // keys of clients
	Config   []string // more lines of sshd_config; of two for one option the first holds
}

// SSHServer is a real sshd of OpenSSH. It serves what the user of the test may
// read, each path as it is on disk. It is ended with the test.
type SSHServer struct {
	Addr string // host and port
	User string // the only one whom it lets in

	log *sshLog
}

// sshLog is what sshd says, and whether it listens by now.
type sshLog struct {
	mu        sync.Mutex // guards text
	text      bytes.Buffer
	listening chan struct{}
	once      sync.Once
}

func (l *sshLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if bytes.Contains(l.text.Bytes(), []byte("Server listening on")) {
		l.once.Do(func() { close(l.listening) })
	}
	return len(p), nil
}

func (l *sshLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// SSHKey is a key pair that ssh-keygen has made.
type SSHKey struct {
	File    string // private key
	Private []byte
	Public  string // "type base64"
}

// NewSSHKey makes a key pair: kind is ed25519, ecdsa or rsa. More arguments go to
// ssh-keygen.
func NewSSHKey(t testing.TB, kind, passphrase string, more ...string) SSHKey {
	t.Helper()
	file := filepath.Join(t.TempDir(), "id")
	args := []string{"-q", "-t", kind, "-N", passphrase, "-C", "", "-f", file}
	if kind == "rsa" {
		args = append(args, "-b", "2048")
	}
	if out, err := exec.Command("ssh-keygen", append(args, more...)...).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	k := SSHKey{File: file}
	public, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if k.Private, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	k.Public = strings.TrimSpace(string(public))
	return k
}

// sshdPath finds sshd, which wants to be called by its whole path. A host
// without one is no reason to fail: CI installs it.
func sshdPath(t testing.TB) string {
	t.Helper()
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("sshd is not installed here; Debian has it in openssh-server")
	return ""
}

// SSH starts an sshd on loopback as an ordinary process with a configuration of
// its own. The test is skipped where sshd is not installed.
func SSH(t testing.TB, o SSHOptions) *SSHServer {
	t.Helper()
	path := sshdPath(t)
	if os.Getuid() == 0 { // sshd started by root confines itself to this directory
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s := &SSHServer{Addr: freeAddr(t), User: me.Username, log: &sshLog{listening: make(chan struct{})}}
		if s.start(t, path, o) {
			return s
		}
	}
	t.Fatal("sshd found no free port")
	return nil
}

// freeAddr is an address at which nothing listens. Somebody else may take it
// before sshd does.
func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// start returns once the server listens; false means that its port was taken.
func (s *SSHServer) start(t testing.TB, path string, o SSHOptions) bool {
	t.Helper()
	dir := t.TempDir()
	var accept strings.Builder
	for _, k := range o.Accept {
		fmt.Fprintln(&accept, k.Public)
	}
	keys := filepath.Join(dir, "authorized_keys")
	config := append([]string(nil), o.Config...)
	config = append(config, "ListenAddress "+s.Addr, "AuthorizedKeysFile "+keys, "PidFile none", "StrictModes no", "UsePAM no",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password", "LogLevel DEBUG1",
		// What a shell of this user reads when it starts is not read in its sessions.
		"SetEnv PATH="+os.Getenv("PATH")+" GIT_CONFIG_NOSYSTEM=1 HOME="+dir+" "+strings.Join(gittest.Quick, " "))
	for _, k := range o.HostKeys {
		config = append(config, "HostKey "+k.File)
	}
	file := filepath.Join(dir, "sshd_config")
	err := errors.Join(os.WriteFile(keys, []byte(accept.String()), 0o600), os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-D", "-e", "-f", file)
	cmd.Stderr, cmd.WaitDelay = s.log, 5*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it was stopped is no news
	}()
	select {
	case <-s.log.listening:
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
		})
		return true
	case <-ended:
		if strings.Contains(s.Log(), "Address already in use") {
			return false
		}
		t.Fatalf("sshd: %s", s.Log())
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
		t.Fatalf("sshd does not listen: %s", s.Log())
	}
	return false
}

// Log is what sshd and its children have said so far, at level DEBUG1.
func (s *SSHServer) Log() string { return s.log.String() }

// URL is that of a directory on this host, for the user whom the server lets in.
func (s *SSHServer) URL(dir string) string {
	return "ssh://" + s.User + "@" + s.Addr + filepath.ToSlash(dir)
}

// Known is the line of known_hosts for a key of the server.
func (s *SSHServer) Known(k SSHKey) string {
	host, port, _ := strings.Cut(s.Addr, ":")
	return "[" + host + "]:" + port + " " + k.Public + "\n"
}

// Hashed is a known_hosts whose names are hashed, as ssh-keygen does it.
func Hashed(t testing.TB, known string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ssh-keygen", "-q", "-H", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen -H: %v: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
