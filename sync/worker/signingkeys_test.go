package worker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/signature"
)

// gpgKey is a private key of OpenPGP and its public one.
func gpgKey(t *testing.T, ends string) (private, public string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpg") // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GNUPGHOME="+dir)
	t.Cleanup(func() {
		stop := exec.Command("gpgconf", "--kill", "all")
		stop.Env = env
		stop.Run()
		os.RemoveAll(dir)
	})
	gpg := func(args ...string) string {
		cmd := exec.Command("gpg", append([]string{"--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", ""},
			args...)...)
		cmd.Env = env
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("gpg %s: %v\n%s", strings.Join(args, " "), err, errs.String())
		}
		return string(out)
	}
	gpg("--quick-generate-key", "Limpet <noreply@grafana.com>", "ed25519", "sign,cert", ends)
	return gpg("--armor", "--export-secret-keys"), gpg("--armor", "--export")
}

func fileText(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestSigningKeys: who asks for signed commits gets them or an error, and who does not
// ask gets them where there is a key.
func TestSigningKeys(t *testing.T) {
	t.Parallel()
	file, _ := sshKey(t)
	sshText := fileText(t, file)
	gpgText, _ := gpgKey(t, "never")
	const sealed = "inline-1"
	for name, c := range map[string]struct {
		key, method, field string
		err                error
		want, wrong        string
	}{
		"nothing":          {},
		"a key of ssh":     {key: sshText, want: "ssh key SHA256:"},
		"a key of OpenPGP": {key: gpgText, want: "gpg key "},
		"ssh as asked":     {key: sshText, method: "ssh", want: "ssh key SHA256:"},
		"gpg as asked":     {key: gpgText, method: "gpg", want: "gpg key "},
		"ssh for gpg":      {key: sshText, method: "gpg", wrong: "is one of ssh, and spec.commit.signingMethod is gpg"},
		"gpg for ssh":      {key: gpgText, method: "ssh", wrong: "is one of gpg, and spec.commit.signingMethod is ssh"},
		"smime": {key: sshText, method: "smime",
			wrong: "spec.commit.signingMethod: smime (X.509 certificates) is not supported: use gpg or ssh"},
		"a method that is none": {key: sshText, method: "GPG", wrong: `unknown method "GPG", known are gpg and ssh`},
		"asked, and no key": {method: "ssh",
			wrong: "spec.commit.signingMethod asks for signed commits, and this agent finds no key: put commitSigningKey"},
		"a field, and no key":      {field: sealed, wrong: "secure.commitSigningKey asks for signed commits"},
		"what is no key":           {key: "nonsense", wrong: "commitSigningKey in the test: it is no private key"},
		"what cannot be read":      {err: errors.New("may be read by others"), wrong: "the key that signs cannot be read: may be read by others"},
		"unreadable and not asked": {err: errors.New("x"), wrong: "x"},
	} {
		repo := api.Repository{Spec: api.RepositorySpec{Commit: &api.CommitSpec{SigningMethod: c.method}}}
		l := auth.Lookup{Namespace: "default", Repository: "repo", Secure: map[string]string{}}
		if c.field != "" {
			l.Secure["commitSigningKey"] = c.field
		}
		s := NewSigningKeys(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			if c.key == "" {
				return nil, c.err
			}
			return &auth.Credentials{SSHKey: []byte(c.key), Source: "the test"}, nil
		})
		key, place, err := s.Key(t.Context(), l, repo, time.Now())
		got := ""
		if key != nil {
			got = key.String()
		}
		if !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") || (err == nil) != (c.wrong == "") || err != nil &&
			!strings.Contains(err.Error(), c.wrong) || got != "" && place != "the test" {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.wrong)
		}
		if err != nil && strings.Contains(err.Error(), "nonsense") {
			t.Errorf("%s: the key is in %v", name, err)
		}
	}
	var none *SigningKeys
	if key, _, err := none.Key(t.Context(), auth.Lookup{}, api.Repository{}, time.Now()); key != nil || err != nil {
		t.Errorf("without a source: %v, %v", key, err)
	}
}

// TestSigningLook: it is told who signs and until when, and that the commits would not be
// pulled here.
func TestSigningLook(t *testing.T) {
	t.Parallel()
	file, public := sshKey(t)
	_, otherPublic := sshKey(t)
	soonText, soonPublic := gpgKey(t, "10d")
	later := strings.ReplaceAll(public, "\n", "")
	for name, c := range map[string]struct {
		key, mode, who string
		signers        []string // names and texts
		reads          bool     // nothing is written there
		text, soon     string
	}{
		"nothing":             {},
		"signed, nobody asks": {key: fileText(t, file), text: "ssh key SHA256:"},
		"ends soon":           {key: soonText, text: "until ", soon: "it ends in 9d"},
		"among those that may": {key: fileText(t, file), mode: "HEAD", signers: []string{"a.sshpub", otherPublic, "b.sshpub", public},
			text: "ssh key"},
		"a key of OpenPGP among them": {key: soonText, mode: "TagAndHEAD", signers: []string{"a.asc", soonPublic}, text: "gpg key",
			soon: "it ends in 9d"},
		"not among them": {key: fileText(t, file), mode: "HEAD", signers: []string{"a.sshpub", otherPublic}, text: "ssh key",
			soon: "what it signs would not be pulled, by annotation limpet/git-verify: its public key is not among those that may sign"},
		"only tags are asked for": {key: fileText(t, file), mode: "Tag", signers: []string{"a.sshpub", otherPublic}, text: "ssh key"},
		"not signed": {mode: "HEAD", signers: []string{"a.sshpub", public}, text: "none",
			soon: "commits that jobs make are not signed, and annotation limpet/git-verify asks for it"},
		"not signed, nothing written": {mode: "HEAD", signers: []string{"a.sshpub", public}, reads: true},
		"for the committer": {key: fileText(t, file), mode: "HEAD", who: "committer",
			signers: []string{"allowed_signers", "noreply@grafana.com " + later}, text: "ssh key"},
		"for another than itself": {key: fileText(t, file), mode: "HEAD", who: "committer",
			signers: []string{"allowed_signers", "ops@example.com " + later}, text: "ssh key", soon: "may not sign for noreply@grafana.com"},
		"OpenPGP, for the committer": {key: soonText, mode: "HEAD", who: "committer", signers: []string{"a.asc", soonPublic}, text: "gpg key",
			soon: "it ends in 9d"},
		"those who may cannot be read": {key: fileText(t, file), mode: "nonsense", text: "ssh key"},
	} {
		var place trusting
		place.set(nil, c.signers...)
		signers := NewSigners(place.find, nil, nil)
		repo := api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://git.example.com/x"},
			Workflows: []string{"write"}}, GitVerify: c.mode, GitVerifyPrincipals: c.who}
		if c.reads {
			repo.Spec.Workflows = nil
		}
		s := NewSigningKeys(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			if c.key == "" {
				return nil, nil
			}
			return &auth.Credentials{SSHKey: []byte(c.key), Source: "the test"}, nil
		})
		look, err := s.Look(t.Context(), "default", "repo", repo, signers, time.Now())
		if err != nil || !strings.Contains(look.Text, c.text) || (look.Text == "") != (c.text == "") || !strings.Contains(look.Soon, c.soon) ||
			(look.Soon == "") != (c.soon == "") {
			t.Errorf("%s: %+v, %v", name, look, err)
		}
		if c.key != "" && !strings.HasSuffix(look.Text, ", the test") {
			t.Errorf("%s: no place in %q", name, look.Text)
		}
	}
	ended := NewSigningKeys(func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{SSHKey: []byte(soonText), Source: "the test"}, nil
	})
	repo := api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://git.example.com/x"}}}
	if _, err := ended.Look(t.Context(), "default", "repo", repo, nil, time.Now().AddDate(0, 0, 11)); err == nil ||
		!strings.Contains(err.Error(), "commitSigningKey in the test: it cannot sign: ") || signature.KindOf(err) != signature.Expired {
		t.Errorf("after its end: %v", err)
	}
}
