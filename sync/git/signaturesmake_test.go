package git

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signatureMaker makes the fixtures.
type signatureMaker struct {
	t     testing.TB
	gnupg string
	dir   string // for private keys of ssh
}

func makeSignatures(t testing.TB) {
	if err := os.MkdirAll(signatureDir, 0o755); err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "gpg") // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	m := &signatureMaker{t: t, gnupg: home, dir: t.TempDir()}
	t.Cleanup(func() {
		tool(t, home, nil, "gpgconf", "--kill", "all")
		os.RemoveAll(home)
	})
	m.makePGP()
	m.makeSSH()
	text := unsignedCommit("plain")
	m.write("unsigned.commit", text)
	m.write("unsigned.tag", unsignedTag("plain"))
	m.write("x509.commit", withSignature(text, "-----BEGIN SIGNED MESSAGE-----\nMIIB\n-----END SIGNED MESSAGE-----\n"))
	m.write("other.commit", withSignature(text, "-----BEGIN SOMETHING-----\nMIIB\n-----END SOMETHING-----\n"))
}

func (m *signatureMaker) write(name string, data []byte) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(signatureDir, name), data, 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// unsignedCommit is a raw commit without a signature, unsignedTag a raw tag.
func unsignedCommit(message string) []byte {
	who := fmt.Sprintf("Ops <ops@example.com> %d +0000", signedAt.Unix())
	return fmt.Appendf(nil, "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor %s\ncommitter %s\n\n%s\n", who, who, message)
}

func unsignedTag(message string) []byte {
	return fmt.Appendf(nil, "object 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ntype tree\ntag v1\ntagger Ops <ops@example.com> %d +0000\n\n%s\n", signedAt.Unix(), message)
}

// withSignature puts a signature into the head of a commit, as git does.
func withSignature(text []byte, signature string) []byte {
	head, message, _ := bytes.Cut(text, []byte("\n\n"))
	header := "gpgsig " + strings.ReplaceAll(strings.TrimRight(signature, "\n"), "\n", "\n ")
	return fmt.Appendf(nil, "%s\n%s\n\n%s", head, header, message)
}

// gpg runs it as if it were that time.
func (m *signatureMaker) gpg(at time.Time, in []byte, args ...string) []byte {
	m.t.Helper()
	return tool(m.t, m.gnupg, in, "gpg", append([]string{"--batch", "--quiet", "--yes", "--pinentry-mode", "loopback", "--passphrase", "",
		"--faked-system-time", at.Format("20060102T150405")}, args...)...)
}

// key makes a key of OpenPGP in 2020 and returns its fingerprint.
func (m *signatureMaker) key(name, algorithm, usage, expires string) string {
	m.t.Helper()
	mail := name + "@example.com"
	m.gpg(signedAt.AddDate(-1, 0, 0), nil, "--quick-generate-key", name+" <"+mail+">", algorithm, usage, expires)
	for l := range strings.SplitSeq(string(m.gpg(signedAt, nil, "--with-colons", "--list-keys", mail)), "\n") {
		if f := strings.Split(l, ":"); f[0] == "fpr" {
			return f[9]
		}
	}
	m.t.Fatalf("no key %s", name)
	return ""
}

func (m *signatureMaker) export(name string) {
	m.t.Helper()
	m.write(name+".asc", m.gpg(time.Now(), nil, "--armor", "--export-options", "no-export-attributes", "--export", name+"@example.com"))
}

func (m *signatureMaker) sign(at time.Time, text []byte, name string, more ...string) string {
	m.t.Helper()
	return string(m.gpg(at, text, append(more, "--armor", "--detach-sign", "--local-user", name+"@example.com")...))
}

func (m *signatureMaker) makePGP() {
	for name, algorithm := range map[string]string{"ed25519": "ed25519", "rsa": "rsa3072", "nistp256": "nistp256", "nistp384": "nistp384",
		"nistp521": "nistp521", "rsa1024": "rsa1024", "dsa": "dsa2048", "brainpool": "brainpoolP256r1"} {
		m.key(name, algorithm, "sign,cert", "never")
		text := unsignedCommit(name)
		m.write("pgp-"+name+".commit", withSignature(text, m.sign(signedAt, text, name)))
		m.export(name)
	}
	for _, name := range []string{"ed25519", "rsa"} {
		text := unsignedTag(name)
		m.write("pgp-"+name+".tag", append(text, m.sign(signedAt, text, name)...))
	}
	text := unsignedCommit("sound")
	good := m.sign(signedAt, text, "ed25519")
	m.write("pgp-tampered.commit", withSignature(unsignedCommit("tampered"), good))
	both := withSignature(text, good)
	m.write("pgp-twice.commit", bytes.Replace(both, []byte("\n\n"),
		[]byte("\ngpgsig "+strings.ReplaceAll(strings.TrimSpace(good), "\n", "\n ")+"\n\n"), 1))
	m.write("pgp-tampered.tag", append(unsignedTag("tampered"), m.sign(signedAt, unsignedTag("sound"), "ed25519")...))
	m.write("pgp-sha1.commit", withSignature(text, m.sign(signedAt, text, "rsa", "--digest-algo", "SHA1", "--allow-weak-digest-algos")))
	m.write("pgp-sigexpired.commit", withSignature(text, m.sign(signedAt, text, "ed25519", "--default-sig-expire", "10d")))
	m.write("pgp-early.commit", withSignature(text, m.sign(signedAt.AddDate(-2, 0, 0), text, "ed25519", "--ignore-time-conflict",
		"--ignore-valid-from")))

	m.key("expired", "ed25519", "sign,cert", "2y")
	m.write("pgp-expired.commit", withSignature(text, m.sign(signedAt, text, "expired")))
	m.export("expired")

	revoked := m.key("revoked", "ed25519", "sign,cert", "never")
	m.write("pgp-revoked.commit", withSignature(text, m.sign(signedAt, text, "revoked")))
	certificate, err := os.ReadFile(filepath.Join(m.gnupg, "openpgp-revocs.d", revoked+".rev"))
	if err != nil {
		m.t.Fatal(err)
	}
	m.gpg(signedAt.AddDate(1, 0, 0), bytes.ReplaceAll(certificate, []byte(":-----BEGIN"), []byte("-----BEGIN")), "--import")
	m.export("revoked")

	for name, expires := range map[string]string{"subkey": "never", "subexpired": "2y", "subrevoked": "never"} {
		owner := m.key(name, "ed25519", "cert", "never")
		m.gpg(signedAt.AddDate(-1, 0, 0), nil, "--quick-add-key", owner, "ed25519", "sign", expires)
		m.write("pgp-"+name+".commit", withSignature(text, m.sign(signedAt, text, name)))
		if name == "subrevoked" {
			tool(m.t, m.gnupg, []byte("key 1\nrevkey\ny\n0\n\ny\nsave\n"), "gpg", "--quiet", "--no-tty", "--pinentry-mode", "loopback",
				"--passphrase", "",
				"--command-fd", "0", "--status-fd", "2", "--faked-system-time", signedAt.AddDate(1, 0, 0).Format("20060102T150405"), "--edit-key",
				owner)
		}
		m.export(name)
	}
}

func (m *signatureMaker) makeSSH() {
	private := func(name string) string { return filepath.Join(m.dir, name) }
	sign := func(key, space string, text []byte) string {
		file := filepath.Join(m.dir, "text")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			m.t.Fatal(err)
		}
		os.Remove(file + ".sig")
		tool(m.t, m.gnupg, nil, "ssh-keygen", "-q", "-Y", "sign", "-n", space, "-f", key, file)
		out, err := os.ReadFile(file + ".sig")
		if err != nil {
			m.t.Fatal(err)
		}
		return string(out)
	}
	public := map[string]string{}
	for name, args := range map[string][]string{"ed25519": {"-t", "ed25519"}, "rsa": {"-t", "rsa", "-b", "3072"},
		"ecdsa":    {"-t", "ecdsa", "-b", "256"},
		"ecdsa521": {"-t", "ecdsa", "-b", "521"}, "rsa1024": {"-t", "rsa", "-b", "1024"}} {
		tool(m.t, m.gnupg, nil, "ssh-keygen", append(args, "-q", "-N", "", "-C", name, "-f", private(name))...)
		data, err := os.ReadFile(private(name) + ".pub")
		if err != nil {
			m.t.Fatal(err)
		}
		public[name] = string(data)
		m.write(name+".sshpub", data)
		text := unsignedCommit(name)
		m.write("ssh-"+name+".commit", withSignature(text, sign(private(name), "git", text)))
	}
	text := unsignedTag("ssh")
	m.write("ssh-ed25519.tag", append(text, sign(private("ed25519"), "git", text)...))
	m.write("ssh-tampered.tag", append(unsignedTag("tampered"), sign(private("ed25519"), "git", text)...))
	m.write("ssh-tampered.commit", withSignature(unsignedCommit("tampered"), sign(private("ed25519"), "git", unsignedCommit("sound"))))
	text = unsignedCommit("for files")
	m.write("ssh-file.commit", withSignature(text, sign(private("ed25519"), "file", text)))

	tool(m.t, m.gnupg, nil, "ssh-keygen", "-q", "-s", private("ecdsa"), "-I", "ops", "-n", "ops", private("ed25519")+".pub")
	m.write("ssh-cert.commit", withSignature(text, sign(private("ed25519")+"-cert.pub", "git", text)))

	ed, other := public["ed25519"], public["ecdsa"]
	m.write("allowed_signers", []byte("# who may sign\n\nbob@example.com "+other+"ops@example.com "+ed))
	m.write("allowed_signers.after", []byte(`ops@example.com valid-after="20210401Z" `+ed))
	m.write("allowed_signers.before", []byte(`ops@example.com namespaces="git",valid-before="20210301000000Z" `+ed))
	m.write("allowed_signers.between", []byte(`ops@example.com valid-after="20210304Z",valid-before="202103050000Z",namespaces="file,git" `+
		ed))
	m.write("allowed_signers.rotated", []byte(`ops@example.com valid-before="20210301Z" `+ed+`ops@example.com valid-after="20210301Z" `+ed))
	m.write("allowed_signers.file", []byte(`ops@example.com namespaces="file" `+ed))
	m.write("allowed_signers.wild", []byte(`"bob@example.com,*@example.com" namespaces="g?t" `+ed))
	m.write("allowed_signers.other", []byte(`ops@example.com `+other))
	m.write("allowed_signers.not", []byte(`*@example.com,!ops@example.com `+ed))
}
