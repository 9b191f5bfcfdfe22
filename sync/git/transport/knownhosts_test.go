package transport

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"limpet/sync/auth"
	"limpet/sync/git/giterr"
)

// FuzzKnownHosts reads known_hosts as people and Secrets give it, and shows it a
// key that no text can name by chance.
func FuzzKnownHosts(f *testing.F) {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	key, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		f.Fatal(err)
	}
	line := xknownhosts.Line([]string{"[git.example.com]:2222"}, key)
	other := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
	for _, s := range []string{line, "# x\n\n" + line + "\r\n", "@revoked * " + other, "@cert-authority *.example.com " + other,
		"|1|x|y " + other, "* " + other, "!git.example.com,* " + other,
		"[git.example.com]:2222 ssh-rsa !!", "git.example.com", "\x00", "*" + strings.Repeat("*a", 50) + " " + other, "[git.example.com]:2222 " +
			other} {
		f.Add([]byte(s))
	}
	material := strings.Fields(string(ssh.MarshalAuthorizedKey(key)))[1]
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, known []byte) {
		c := &Call{client: New(dir, Options{}), Target: Target{Creds: &auth.Credentials{KnownHosts: known}},
			Addr: auth.Address{Scheme: "ssh", Host: "git.example.com", Port: "2222"}, redact: redactor(nil)}
		config := &ssh.ClientConfig{}
		if err := c.hostKeys(config); err != nil {
			if e, ok := errors.AsType[*giterr.Error](err); !ok || e.Kind != giterr.Auth {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, kind := range config.HostKeyAlgorithms {
			if kind == ssh.KeyAlgoRSA || kind == "ssh-dss" {
				t.Fatalf("%s is asked for", kind)
			}
		}
		err := config.HostKeyCallback("git.example.com:2222", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2222}, key)
		if err == nil && !bytes.Contains(known, []byte(material[:20])) {
			t.Fatalf("the key is accepted by %q", known)
		}
		if err == nil && bytes.HasPrefix(bytes.TrimSpace(known), []byte("@revoked")) && bytes.Count(known, []byte("\n")) == 0 {
			t.Fatalf("a revoked key is accepted by %q", known)
		}
	})
}

func TestKnownHostsAreOnlyRead(t *testing.T) {
	t.Parallel()
	text := "git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\r\n"
	creds := &auth.Credentials{KnownHosts: []byte(text)}
	c := &Call{client: New(t.TempDir(), Options{}), Target: Target{Creds: creds},
		Addr: auth.Address{Scheme: "ssh", Host: "git.example.com"}}
	if err := c.hostKeys(&ssh.ClientConfig{}); err != nil {
		t.Fatal(err)
	}
	if string(creds.KnownHosts) != text {
		t.Errorf("credentials that others share were changed to %q", creds.KnownHosts)
	}
}
