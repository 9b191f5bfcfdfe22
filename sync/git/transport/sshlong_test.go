package transport

import (
	"io"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"golang.org/x/crypto/ssh"

	"limpet/sync/auth"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
)

// TestLongListOverSSH: a host that takes the version names the refs that are looked at, and sends
// the pack on the same connection; with any other the list is read as before, and asked for no more.
func TestLongListOverSSH(t *testing.T) {
	t.Parallel()
	o := gittest.NewOrigin(t, t.TempDir(), "site.git")
	first := o.Commit("one", map[string]string{"a.json": "1", "b.json": strings.Repeat("b", 1000)})
	o.ManyTags(first)
	host, key := testenv.NewSSHKey(t, "ed25519", ""), testenv.NewSSHKey(t, "ed25519", "")
	for name, c := range map[string]struct {
		config []string
		spoken version
		most   int64 // bytes that a look costs, with the handshake of ssh
	}{
		"version 2": {[]string{"AcceptEnv GIT_PROTOCOL"}, version2, 10 << 10},
		"version 0": {nil, versionOld, 1 << 20},
	} {
		s := testenv.SSH(t, testenv.SSHOptions{HostKeys: []testenv.SSHKey{host}, Accept: []testenv.SSHKey{key}, Config: c.config})
		client := New(t.TempDir(), Options{})
		target := Target{URL: s.URL(o.Bare), Creds: &auth.Credentials{SSHKey: key.Private, KnownHosts: []byte(s.Known(host))}}
		commits := []pack.ID{id(t, first), id(t, o.Commit(name, map[string]string{"a.json": name}))}
		for i, depth := range []int{1, 0} {
			call := gittest.Must[*Call](t)(client.Begin(t.Context(), "fetch", target))
			leave := gittest.Must[func()](t)(call.Visit())
			if i == 0 {
				all := gittest.Must[*Listing](t)(call.Look("refs/heads/main"))
				all.Session.Close()
				if all.Prefixes != nil || len(all.Refs.References) < 1000 {
					t.Fatalf("%s: the first look read %d refs", name, len(all.Refs.References))
				}
			}
			before, _, _ := call.Cost()
			l, err := call.Look("refs/heads/main")
			if err != nil {
				t.Fatalf("%s: %v", name, call.Fail(err))
			}
			after, _, _ := call.Cost()
			if got := call.longServer().version; got != c.spoken || after-before > c.most {
				t.Errorf("%s: version %d is spoken, a look costs %d bytes", name, got, after-before)
			}
			if len(l.Refs.References) > 1 != (l.Prefixes == nil) || l.Refs.References["refs/heads/main"] != commits[1] {
				t.Errorf("%s: %d refs below %q", name, len(l.Refs.References), l.Prefixes)
			}
			w := Want{ID: commits[1], Depth: depth}
			if i == 1 {
				w.Haves, w.Shallows = commits[:1], commits[:1]
			}
			answer, content, err := call.Ask(l, w, 1<<20)
			if err != nil {
				t.Fatalf("%s: %v", name, call.Fail(err))
			}
			data := gittest.Must[[]byte](t)(io.ReadAll(content))
			if rest, err := io.ReadAll(answer); !strings.HasPrefix(string(data), "PACK") || len(rest) > 0 || err != nil {
				t.Errorf("%s: %.20q and %q, %v", name, data, rest, err)
			}
			if depth == 1 != (len(answer.Shallows) == 1 && answer.Shallows[0] == commits[1]) || i == 1 && len(data) > 800 {
				t.Errorf("%s: %d bytes end at %v", name, len(data), answer.Shallows)
			}
			l.Session.Close()
			leave()
			call.End()
		}
		client.CloseIdle()
	}
}

func id(t *testing.T, hash string) pack.ID {
	t.Helper()
	id, ok := pack.ParseID(hash)
	if !ok {
		t.Fatalf("%q is no id", hash)
	}
	return id
}

// TestOtherAnswerOverSSH: what is not an answer of version 2 is an error, and the next look begins
// with the list of version 0.
func TestOtherAnswerOverSSH(t *testing.T) {
	t.Parallel()
	key := gittest.SSHKeys()["ed25519"]
	pub := gittest.Must[ssh.PublicKey](t)(ssh.NewPublicKey(key.Public()))
	s := gittest.NewSSHServer(t, t.TempDir(), pub, key)
	hello := packet("version 2\n") + packet("ls-refs\n") + packet("fetch=shallow\n") + "0000"
	refs := packet(someID+" refs/heads/main\n") + "0000"
	for says, want := range map[string]giterr.Kind{
		packet("version 2\n"): giterr.Protocol, packet("version 2\n") + "0000": giterr.Protocol, hello: giterr.Protocol,
		hello + packet("junk\n"): giterr.Protocol, hello + refs: giterr.Unreachable,
		hello + refs + packet("ERR access denied or repository not exported\n"): giterr.NotFound,
		hello + refs + packet("packfile 1\n"):                                   giterr.Protocol, hello + refs + "0000": giterr.Protocol,
	} {
		s.Instead(func(ch ssh.Channel) {
			io.WriteString(ch, says)
			ch.CloseWrite()
			io.Copy(io.Discard, ch)
		})
		client := New(t.TempDir(), Options{})
		c := gittest.Must[*Call](t)(client.Begin(t.Context(), "fetch", Target{URL: s.RemoteURL("x"),
			Creds: &auth.Credentials{SSHKey: gittest.PrivateKey(t, key, ""), KnownHosts: s.Known(key)}}))
		c.rememberLong(longServer{packp.NewAdvRefs().Capabilities, versionUnknown})
		leave := gittest.Must[func()](t)(c.Visit())
		l, err := c.Look("refs/heads/main")
		if err == nil {
			_, _, err = c.Ask(l, Want{ID: id(t, someID), Depth: 1}, 1<<20)
			l.Session.Close()
		}
		if got := giterr.KindOf(c.Fail(err)); got != want {
			t.Errorf("%q: %s: %v", says, got, err)
		}
		leave()
		c.End()
	}
}

// FuzzFetch: an answer to a fetch is taken only where a pack follows.
func FuzzFetch(f *testing.F) {
	f.Add(packet("shallow-info\n") + packet("shallow "+someID+"\n") + packet("unshallow "+otherID+"\n") + "0001" + packet("packfile\n"))
	f.Add(packet("ERR no\n"))
	f.Fuzz(func(t *testing.T, data string) {
		var ends packp.ShallowUpdate
		if err := readFetch(strings.NewReader(data), &ends); err == nil && !strings.Contains(data, "packfile") {
			t.Fatal("a pack is taken that is not there")
		}
	})
}
