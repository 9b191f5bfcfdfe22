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
	"limpet/sync/worker/checkout"
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

// TestSigningKeys: who asks for signed commits gets them or an error, and who does not ask gets
// them where there is a key.
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
		from := func(context.Context, auth.Lookup) (*auth.Credentials, error) {
			if c.key == "" {
				return nil, c.err
			}
			return &auth.Credentials{SSHKey: []byte(c.key), Source: "the test"}, nil
		}
		key, place, err := checkout.SigningKey(t.Context(), from, l, repo, time.Now())
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
	if key, _, err := checkout.SigningKey(t.Context(), nil, auth.Lookup{}, api.Repository{}, time.Now()); key != nil || err != nil {
		t.Errorf("without a source: %v, %v", key, err)
	}
}

// TestSigningLook: it is told who signs and until when.
func TestSigningLook(t *testing.T) {
	t.Parallel()
	soonText, _ := gpgKey(t, "10d")
	from := func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{SSHKey: []byte(soonText), Source: "the test"}, nil
	}
	repo := api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://git.example.com/x"}}}
	look, err := checkout.LookAtSigningKey(t.Context(), from, "default", "repo", repo, time.Now())
	if err != nil || !strings.HasPrefix(look.Text, "gpg key ") || !strings.HasSuffix(look.Text, ", the test") || look.Soon != "it ends in 9d" {
		t.Errorf("%+v, %v", look, err)
	}
	if _, err := checkout.LookAtSigningKey(t.Context(), from, "default", "repo", repo, time.Now().AddDate(0, 0, 11)); err == nil ||
		!strings.Contains(err.Error(), "commitSigningKey in the test: it cannot sign: ") || signature.KindOf(err) != signature.Expired {
		t.Errorf("after its end: %v", err)
	}
}

// TestTakes: a commit that pulls of this repository would reject is not pushed.
func TestTakes(t *testing.T) {
	t.Parallel()
	file, public := sshKey(t)
	_, otherPublic := sshKey(t)
	gpgText, gpgPublic := gpgKey(t, "10d")
	const defaultMail = "noreply@grafana.com" // of Grafana
	one := strings.ReplaceAll(public, "\n", "")
	for name, c := range map[string]struct {
		key, mode, who string
		signers        []string // names and texts
		want           string
	}{
		"among those that may":    {fileText(t, file), "HEAD", "", []string{"a.sshpub", otherPublic, "b.sshpub", public}, ""},
		"a key of OpenPGP":        {gpgText, "TagAndHEAD", "committer", []string{"a.asc", gpgPublic}, ""},
		"not among them":          {fileText(t, file), "HEAD", "", []string{"a.sshpub", otherPublic}, "is not among those that may sign"},
		"only tags are asked for": {fileText(t, file), "Tag", "", []string{"a.sshpub", otherPublic}, ""},
		"not signed":              {"", "HEAD", "", []string{"a.sshpub", public}, "are not signed"},
		"for the committer":       {fileText(t, file), "HEAD", "committer", []string{"allowed_signers", defaultMail + " " + one}, ""},
		"for another": {fileText(t, file), "HEAD", "committer", []string{"allowed_signers", "ops@example.com " + one},
			"may not sign for " + defaultMail},
	} {
		var place trusting
		place.set(nil, c.signers...)
		repo := api.Repository{GitVerify: c.mode, GitVerifyPrincipals: c.who}
		trust, err := checkout.NewSigners(place.find, nil, nil).Trust(t.Context(), repo, auth.Lookup{})
		if err != nil {
			t.Fatal(err)
		}
		var key *signature.SigningKey
		if c.key != "" {
			if key, err = signature.ParseSigningKey([]byte(c.key), nil, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		err = trust.Takes(key, defaultMail, time.Now())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
