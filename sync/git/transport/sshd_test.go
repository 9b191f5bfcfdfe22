package transport_test

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/git"

	"golang.org/x/crypto/ssh"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

// Against a real sshd: what the server of the other tests shares with the client,
// golang.org/x/crypto, would not be noticed there.

// keyKinds are those that hosts have.
var keyKinds = []string{"ed25519", "ecdsa", "rsa"}

// keysOf makes a key of each kind.
func keysOf(t *testing.T) map[string]testenv.SSHKey {
	t.Helper()
	out := map[string]testenv.SSHKey{}
	for _, kind := range keyKinds {
		out[kind] = testenv.NewSSHKey(t, kind, "")
	}
	return out
}

// TestSSHD fetches with each kind of client key from hosts with each kind of key,
// of which known_hosts names one.
func TestSSHD(t *testing.T) {
	t.Parallel()
	hosts, clients := keysOf(t), keysOf(t)
	s := testenv.SSH(t, testenv.SSHOptions{
		HostKeys: []testenv.SSHKey{hosts["ed25519"], hosts["ecdsa"], hosts["rsa"]},
		Accept:   []testenv.SSHKey{clients["ed25519"], clients["ecdsa"], clients["rsa"]}})
	o := gittest.NewOrigin(t, t.TempDir(), `it's a "site" $(x).git`)
	first := o.Commit("one", map[string]string{"a.json": gittest.Dashboard("a", 1, 30)})
	url := strings.NewReplacer(" ", "%20", `"`, "%22").Replace(s.URL(o.Bare))
	for _, host := range keyKinds {
		for _, client := range keyKinds {
			if client != host && client != "ed25519" {
				continue
			}
			t.Run(client+" to "+host, func(t *testing.T) {
				m := mirrortest.Open(t, git.Options{})
				known := "# a comment\n" + s.Known(hosts[host])
				if client == host {
					known = testenv.Hashed(t, known)
				}
				before := len(s.Log())
				r := git.Remote{URL: url, Creds: &auth.Credentials{SSHKey: clients[client].Private, KnownHosts: []byte(known)}}
				ref, st := mirrortest.Sync(t, m, r, "")
				if ref.Hash != first || !st.Full || st.Bytes == 0 {
					t.Fatalf("%+v %+v", ref, st)
				}
				if got := mirrortest.Content(t, m, r, first, ""); got["a.json"] != gittest.Dashboard("a", 1, 30) {
					t.Error("content differs")
				}
				mirrortest.Fsck(t, m, r)
				want := map[string]string{"ed25519": "ssh-ed25519", "ecdsa": "ecdsa-sha2-nistp256", "rsa": "rsa-sha2-512"}
				log := s.Log()[before:]
				for _, line := range []string{"kex: host key algorithm: " + want[host], "pkalg " + want[client]} {
					if !strings.Contains(log, line) {
						t.Errorf("sshd does not say %q:\n%s", line, log)
					}
				}
			})
		}
	}
	t.Run("a second commit", func(t *testing.T) {
		m := mirrortest.Open(t, git.Options{})
		r := git.Remote{URL: url, Creds: &auth.Credentials{SSHKey: clients["ed25519"].Private, KnownHosts: []byte(s.Known(hosts["rsa"]))}}
		mirrortest.Sync(t, m, r, "")
		second := o.Commit("two", map[string]string{"a.json": gittest.Dashboard("a", 2, 30)})
		if ref, st := mirrortest.Sync(t, m, r, "main"); ref.Hash != second || st.Full || st.Bytes > 8000 || st.Bytes == 0 {
			t.Errorf("%+v %+v", ref, st)
		}
		mirrortest.Fsck(t, m, r)
	})
}

// TestSSHDKeys tries the forms in which keys lie in Secrets, and those that are
// refused.
func TestSSHDKeys(t *testing.T) {
	t.Parallel()
	const phrase = gittest.Secret
	host, other := testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ed25519", "")
	forms := map[string]testenv.SSHKey{
		"ed25519 of OpenSSH": testenv.NewSSHKey(t, "ed25519", phrase), "rsa of OpenSSH": testenv.NewSSHKey(t, "rsa", phrase),
		"rsa in PEM": testenv.NewSSHKey(t, "rsa", phrase, "-m", "PEM"), "ecdsa in PEM": testenv.NewSSHKey(t, "ecdsa", phrase, "-m", "PEM"),
	}
	open := map[string]testenv.SSHKey{"rsa in PKCS 8, open": testenv.NewSSHKey(t, "rsa", "", "-m", "PKCS8"),
		"ecdsa of 521 bits, open": testenv.NewSSHKey(t, "ecdsa", "", "-b", "521")}
	var accept []testenv.SSHKey
	for _, k := range forms {
		accept = append(accept, k)
	}
	for _, k := range open {
		accept = append(accept, k)
	}
	s := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{host}, Accept: accept})
	o := gittest.NewOrigin(t, t.TempDir(), "site.git")
	o.Commit("one", map[string]string{"a.json": "1"})
	m := mirrortest.Open(t, git.Options{})
	try := func(url string, creds auth.Credentials) error {
		if creds.KnownHosts == nil {
			creds.KnownHosts = []byte(s.Known(host))
		}
		_, err := m.Resolve(t.Context(), git.Remote{URL: url, Creds: &creds}, gitref.Branch(""))
		return err
	}
	url := s.URL(o.Bare)
	for name, k := range forms {
		if err := try(url, auth.Credentials{SSHKey: k.Private, SSHPassphrase: phrase}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		gittest.ErrorIs(t, try(url, auth.Credentials{SSHKey: k.Private, SSHPassphrase: "CANARY2"}), git.Auth, "does not open the ssh key")
		gittest.ErrorIs(t, try(url, auth.Credentials{SSHKey: k.Private}), git.Auth, "no passphrase")
	}
	for name, k := range open {
		if err := try(url, auth.Credentials{SSHKey: k.Private}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := open["rsa in PKCS 8, open"].Private
	gittest.ErrorIs(t, try(url, auth.Credentials{SSHKey: other.Private}), git.Auth, "permission denied (publickey) for ", "add the public key")
	gittest.ErrorIs(t, try(strings.Replace(url, s.User+"@", "nobody-of-that-name@", 1), auth.Credentials{SSHKey: good}), git.Auth,
		"permission denied (publickey) for ", "check the user")
	if !strings.Contains(s.Log(), "nobody-of-that-name") {
		t.Error("the user of the url was not asked for")
	}
	// The printed line is the one that has to be added.
	line := strings.TrimSpace(s.Known(host))
	gittest.ErrorIs(t, try(url, auth.Credentials{SSHKey: good, KnownHosts: []byte("git.example.com " + host.Public)}), git.Auth,
		"not in known_hosts", "add this line to known_hosts: "+line)
	gittest.ErrorIs(t, try(url, auth.Credentials{SSHKey: good, KnownHosts: []byte(s.Known(other))}), git.Auth, "not the one in known_hosts",
		"somebody may be in between")
	gittest.ErrorIs(t, try(url, auth.Credentials{SSHKey: good, KnownHosts: []byte(testenv.Hashed(t, s.Known(other)))}), git.Auth,
		"not the one in known_hosts")
	// Without the port the line is for the port 22 only.
	gittest.ErrorIs(t, try(url, auth.Credentials{SSHKey: good, KnownHosts: []byte("127.0.0.1 " + host.Public)}), git.Auth,
		"not in known_hosts")
	gittest.ErrorIs(t, try(s.URL(filepath.Dir(o.Bare)+"/nowhere.git"), auth.Credentials{SSHKey: good}), git.NotFound)
	if left := gittest.Glob(t, mirrortest.Dir(m), "tmp_*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSSHDWithoutLegacy offers only what is not safe any more.
func TestSSHDWithoutLegacy(t *testing.T) {
	t.Parallel()
	host, client := testenv.NewSSHKey(t, "rsa", ""), testenv.NewSSHKey(t, "rsa", "")
	for option, says := range map[string]string{
		"KexAlgorithms diffie-hellman-group14-sha1":   "diffie-hellman-group14-sha1",
		"KexAlgorithms diffie-hellman-group1-sha1":    "diffie-hellman-group1-sha1",
		"Ciphers aes128-cbc,3des-cbc":                 "aes128-cbc",
		"Ciphers aes128-ctr\nMACs hmac-sha1-96":       "hmac-sha1-96",
		"HostKeyAlgorithms ssh-rsa":                   "ssh-rsa",
		"PubkeyAcceptedAlgorithms ssh-rsa":            "permission denied (publickey) for ",
		"HostKeyAlgorithms rsa-sha2-256":              "", // these are good
		"KexAlgorithms diffie-hellman-group16-sha512": "",
		"KexAlgorithms ecdh-sha2-nistp384":            "",
		"Ciphers chacha20-poly1305@openssh.com":       "",
	} {
		t.Run(option, func(t *testing.T) {
			s := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{host}, Accept: []testenv.SSHKey{client}, Config: []string{option}})
			o := gittest.NewOrigin(t, t.TempDir(), "site.git")
			o.Commit("one", map[string]string{"a.json": "1"})
			m := mirrortest.Open(t, git.Options{})
			for name, known := range map[string]string{"known": s.Known(host), "unknown": "git.example.com " + host.Public} {
				_, err := m.Resolve(t.Context(), git.Remote{URL: s.URL(o.Bare),
					Creds: &auth.Credentials{SSHKey: client.Private, KnownHosts: []byte(known)}}, gitref.Branch(""))
				switch {
				case says == "" && name == "known":
					if err != nil {
						t.Error(err)
					}
				case says == "" || name == "unknown" && strings.HasPrefix(option, "Pubkey"):
					gittest.ErrorIs(t, err, git.Auth, "add this line")
				case strings.HasPrefix(option, "Pubkey"):
					gittest.ErrorIs(t, err, git.Auth, says)
				default:
					gittest.ErrorIs(t, err, git.Protocol, says, "not safe any more", "update its ssh server")
				}
			}
		})
	}
}

// TestSSHSignsNothingWithSHA1 is refused by a server that would take nothing else;
// sshd announces more than it takes, so that it tells less.
func TestSSHSignsNothingWithSHA1(t *testing.T) {
	t.Parallel()
	key := gittest.SSHKeys()["rsa"]
	s := gittest.NewSSHServer(t, t.TempDir(), gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public())), key)
	s.Config.PublicKeyAuthAlgorithms = []string{ssh.KeyAlgoRSA} // before any client comes
	creds := &auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: s.Known(key)}
	_, err := mirrortest.Open(t, git.Options{}).Resolve(t.Context(), git.Remote{URL: s.RemoteURL("x"), Creds: creds}, gitref.Branch(""))
	gittest.ErrorIs(t, err, git.Auth, "only with SHA-1", "ed25519")
}

// between is a connection to sshd that carries so many bytes of the server's, and
// then is silent or ends.
func between(t *testing.T, to string, carry int64, end bool) string {
	t.Helper()
	ln := gittest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	var wg sync.WaitGroup
	var mu sync.Mutex // guards open
	var open []net.Conn
	wg.Go(func() {
		for {
			down, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				down.Close()
				continue
			}
			mu.Lock()
			open = append(open, down, up)
			mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(up, down) })
			wg.Go(func() {
				_, _ = io.CopyN(down, up, carry)
				if end {
					down.Close()
					up.Close()
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

// TestSSHDBreaksOff stops real conversations after the banner, within the key
// exchange, in the list of refs and in the pack.
func TestSSHDBreaksOff(t *testing.T) {
	t.Parallel()
	host, client := testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ed25519", "")
	s := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{host}, Accept: []testenv.SSHKey{client}})
	o := gittest.NewOrigin(t, t.TempDir(), "site.git")
	o.Commit("one", map[string]string{"a.json": gittest.Dashboard("a", 1, 3000), "b.json": gittest.Dashboard("b", 2, 3000)})
	_, known, _ := strings.Cut(s.Known(host), " ")
	for carry, where := range map[int64]string{0: "at once", 20: "in the banner", 41: "after the banner", 700: "in the key exchange",
		3100: "late", 5000: "in the pack"} {
		for _, end := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, end %t", where, end), func(t *testing.T) {
				addr := between(t, s.Addr, carry, end)
				at, port, _ := strings.Cut(addr, ":")
				options := git.Options{}
				if !end {
					options.Stall = 300 * time.Millisecond
				}
				m := mirrortest.Open(t, options)
				r := git.Remote{URL: strings.Replace(s.URL(o.Bare), s.Addr, addr, 1),
					Creds: &auth.Credentials{SSHKey: client.Private, KnownHosts: []byte("[" + at + "]:" + port + " " + known)}}
				began := time.Now()
				ref, err := m.Resolve(t.Context(), r, gitref.Branch(""))
				if err == nil {
					_, err = m.Fetch(t.Context(), r, ref)
				}
				if end {
					gittest.ErrorIs(t, err, git.Unreachable)
				} else {
					gittest.ErrorIs(t, err, git.Timeout, "silent")
				}
				if took := time.Since(began); took > time.Minute { // where only the silence ended it, that is two
					t.Errorf("it took %s", took)
				}
				if left := gittest.Glob(t, mirrortest.Dir(m), "tmp_*"); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		}
	}
}

// TestSSHToSomethingElse asks ports at which no ssh server is.
func TestSSHToSomethingElse(t *testing.T) {
	t.Parallel()
	client := testenv.NewSSHKey(t, "ed25519", "")
	for _, says := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "220 mail \x1b[2Jready\r\n", "Not allowed at this time\r\n",
		strings.Repeat("x", 100_000), strings.Repeat("spam\r\n", 100_000), "SSH-2.0-x\r\n\xff\xff\xff\xffxxxxx"} {
		ln := gittest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		var wg sync.WaitGroup
		wg.Go(func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, says)
			if strings.HasPrefix(says, "SSH-") {
				_, _ = io.Copy(io.Discard, conn) // else it could end before all of that is read
			}
		})
		_, err := mirrortest.Open(t, git.Options{}).Resolve(t.Context(), git.Remote{URL: "ssh://" + ln.Addr().String() + "/x",
			Creds: &auth.Credentials{SSHKey: client.Private, KnownHosts: []byte("x " + client.Public)}}, gitref.Branch(""))
		gittest.ErrorIs(t, err, git.Unreachable)
		ln.Close()
		wg.Wait()
	}
}

// TestSSHDLongList follows a branch of a repository with many refs: what is fetched in version 2 is
// whole, and costs less than the list.
func TestSSHDLongList(t *testing.T) {
	t.Parallel()
	host, client := testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ed25519", "")
	s := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{host}, Accept: []testenv.SSHKey{client},
		Config: []string{"AcceptEnv GIT_PROTOCOL"}})
	o := gittest.NewOrigin(t, t.TempDir(), "site.git")
	commit := o.Commit("0", map[string]string{"a.json": "0", "b.json": strings.Repeat("b", 100)})
	o.ManyTags(commit)
	m := mirrortest.Open(t, git.Options{})
	r := git.Remote{URL: s.URL(o.Bare), Creds: &auth.Credentials{SSHKey: client.Private, KnownHosts: []byte(s.Known(host))}}
	for i := range 3 {
		if i > 0 {
			commit = o.Commit(fmt.Sprint(i), map[string]string{"a.json": fmt.Sprint(i)})
		}
		ref, st := mirrortest.Sync(t, m, r, "main")
		if ref.Hash != commit || st.Full != (i == 0) || i > 0 && st.Bytes > 20<<10 {
			t.Errorf("%+v %+v", ref, st)
		}
		if got := mirrortest.Content(t, m, r, commit, ""); got["a.json"] != fmt.Sprint(i) || len(got) != 2 {
			t.Errorf("%q", got)
		}
		mirrortest.Fsck(t, m, r)
	}
}
