package worker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/signature"
	"limpet/sync/testenv"
	"limpet/sync/worker/checkout"
)

// trusting is a place of keys.
type trusting struct {
	mu    sync.Mutex // guards what follows
	files map[string][]byte
	err   error
}

func (p *trusting) set(err error, files ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files, p.err = nil, err
	for i := 0; i < len(files); i += 2 {
		if p.files == nil {
			p.files = map[string][]byte{}
		}
		p.files[files[i]] = []byte(files[i+1])
	}
}

func (p *trusting) find(context.Context, auth.Lookup) (*auth.Trust, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		return nil, p.err
	}
	return &auth.Trust{Files: p.files, Place: "the test"}, p.err
}

// sshKey makes a key and returns its file and its public half.
func sshKey(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	data, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return file, string(data)
}

// sign signs the newest commit and moves the branch to it.
func (r *rig) sign(key string) string {
	r.t.Helper()
	args := []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + key, "commit-tree", "-S", "-m", "signed", "HEAD^{tree}"}
	if parents := r.repo.Git(r.t, "rev-list", "--parents", "-n1", "HEAD"); strings.Contains(parents, " ") {
		args = append(args, "-p", "HEAD~1")
	}
	id := r.repo.Git(r.t, args...)
	r.repo.Git(r.t, "update-ref", "refs/heads/"+testenv.Branch, id)
	return id
}

// annotate sets an annotation of the Repository; "" takes it away.
func (r *rig) annotate(name, value string) {
	r.t.Helper()
	patch := `{"metadata":{"annotations":{"` + name + `":"` + value + `"}}}`
	if value == "" {
		patch = `{"metadata":{"annotations":{"` + name + `":null}}}`
	}
	r.change(patch)
}

// verified checks the condition about signatures and returns what was judged by.
func (r *rig) verified(status, reason string) api.Verification {
	r.t.Helper()
	_, u := r.sync()
	repo, err := api.RepositoryView(u)
	if err != nil {
		r.t.Fatal(err)
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	_, c := api.FindCondition(list, api.ConditionVerified)
	if got, _ := c["status"].(string); got != status || status != "" && c["reason"] != reason {
		r.t.Errorf("condition %v, want %s %s", c, status, reason)
	}
	return api.VerificationOf(repo.Status.Conditions)
}

// TestVerifiedPulls: nothing of what is not signed is applied, and what was pulled before stays.
func TestVerifiedPulls(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		var place trusting
		r := newRig(t, server, func(o *PullOptions) { o.Source.Signers = checkout.NewSigners(place.find, nil, nil) })
		key, public := sshKey(t)
		_, otherPublic := sshKey(t)
		r.repository(nil, map[string]string{api.AnnoGitVerify: "HEAD"})
		r.commit("cpu.json", board("cpu", "CPU"))
		r.sign(key)

		r.expect("no keys", false, "error", "there are no keys that may sign")
		r.verified("False", "NoKeys")
		place.set(nil, "a.sshpub", "nonsense")
		r.expect("keys that cannot be read", false, "error", "keys in a.sshpub: line 1")
		r.verified("False", "NoKeys")
		place.set(errors.New("no such disk"))
		r.expect("keys that cannot be had", false, "error", "no such disk")
		r.annotate(api.AnnoGitVerify, "Heads")
		r.expect("unknown mode", false, "error", `unknown mode of verification "Heads"`)
		r.verified("False", "WrongMode")
		r.annotate(api.AnnoGitVerify, "Tag")
		place.set(nil, "a.sshpub", public)
		r.expect("no tag", false, "error", "refs/heads/main is not a tag")
		r.verified("False", "WrongMode")
		r.annotate(api.AnnoGitVerify, "head")

		r.expect("signed", true, "success", "", "POST folders/repo", "POST dashboards/cpu")
		first := r.verified("True", "Verified")
		good := r.repo.Head(t)
		if first.Object != good || len(first.Trust) != 16 {
			t.Errorf("judged by %+v", first)
		}
		r.git.Reset()
		r.expect("nothing new", true, "success", "same commit as last sync")
		if c := r.git.Reset(); c.InfoRefs != 1 || c.UploadPack != 0 {
			t.Errorf("git requests of a pull with nothing new: %+v", c)
		}

		r.commit("cpu.json", board("cpu", "Evil"), "evil.json", board("evil", "Evil"))
		for _, incremental := range []bool{true, false} {
			r.expect("unsigned", incremental, "error", "is not signed")
			sync, _ := r.sync()
			if sync.LastRef != good {
				t.Errorf("the last commit is %s, not %s", sync.LastRef, good)
			}
			r.verified("False", "Unsigned")
		}
		if got := r.object(dashboards, "cpu"); got == nil || got.Object["spec"].(map[string]any)["title"] != "CPU" {
			t.Errorf("the dashboard is now %v", got)
		}

		better := r.sign(key)
		r.expect("signed after all", true, "success", "", "PUT dashboards/cpu", "POST dashboards/evil")
		r.verified("True", "Verified")

		place.set(nil, "a.sshpub", otherPublic)
		r.expect("the key was taken away", true, "error", "which is not the one key of the test")
		if now := r.verified("False", "UnknownKey"); now.Trust == first.Trust || now.Object != better {
			t.Errorf("judged by %+v, before by %+v", now, first)
		}
		place.set(nil, "a.sshpub", otherPublic, "b.sshpub", public)
		r.expect("and came back", true, "success", "same commit as last sync")
		r.verified("True", "Verified")

		r.annotate(api.AnnoGitVerifyPrincipals, "committer")
		r.expect("of nobody by name", true, "error", "a key without a principal")
		r.verified("False", "Principal")
		place.set(nil, signature.AllowedSigners, "ops@example.com "+public)
		r.expect("of the committer", true, "success", "same commit as last sync")
		r.annotate(api.AnnoGitVerifyPrincipals, "boss@example.com")
		r.expect("of another", true, "error", "may not sign for boss@example.com")

		r.annotate(api.AnnoGitVerify, "")
		r.commit("cpu.json", board("cpu", "Free"))
		r.expect("not asked for any more", true, "success", "", "PUT dashboards/cpu")
		if v := r.verified("", ""); v != (api.Verification{}) {
			t.Errorf("judged by %+v", v)
		}
	})
}

// TestVerifiedTags: a tag object that was made again is verified anew.
func TestVerifiedTags(t *testing.T) {
	t.Parallel()
	var place trusting
	r := newRig(t, "embedded", func(o *PullOptions) { o.Source.Signers = checkout.NewSigners(place.find, nil, nil) })
	key, public := sshKey(t)
	place.set(nil, "a.sshpub", public)
	signed := []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + key, "tag", "-f", "-s", "-m", "release", "v1"}
	r.repository(nil, map[string]string{api.AnnoGitVerify: "Tag", api.AnnoGitRef: "tag:v1"})
	r.commit("cpu.json", board("cpu", "CPU"))
	r.repo.Git(t, signed...)
	r.expect("signed tag", true, "success", "", "POST folders/repo", "POST dashboards/cpu")
	if v := r.verified("True", "Verified"); v.Object != r.repo.Git(t, "rev-parse", "refs/tags/v1") {
		t.Errorf("judged by %+v", v)
	}
	r.repo.Git(t, "tag", "-f", "-a", "-m", "release", "v1")
	r.expect("made anew without a signature", true, "error", "tag v1 is not signed")
	if v := r.verified("False", "Unsigned"); v.Object != r.repo.Git(t, "rev-parse", "refs/tags/v1") {
		t.Errorf("judged by %+v", v)
	}
	r.repo.Git(t, "tag", "-f", "v1")
	r.expect("made anew as a name", true, "error", "lightweight tag")
	r.annotate(api.AnnoGitVerify, "TagAndHEAD")
	r.repo.Git(t, signed...)
	r.expect("signed tag of an unsigned commit", true, "error", "is not signed")
	r.sign(key)
	r.repo.Git(t, signed...)
	r.expect("both signed", true, "success", "")
	r.verified("True", "Verified")
}

func digestBy(t *testing.T, repo api.Repository, place *trusting) (string, error) {
	digest, _, err := checkout.NewSigners(place.find, nil, nil).Asked(t.Context(), "default", "repo", repo)
	return digest, err
}

// TestTrustDigest changes with all that is asked for, and only then.
func TestTrustDigest(t *testing.T) {
	t.Parallel()
	_, public := sshKey(t)
	_, other := sshKey(t)
	digest := func(mode, principals string, place *trusting) string {
		t.Helper()
		repo := api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://git.example.com/x"}}, GitVerify: mode,
			GitVerifyPrincipals: principals}
		d, err := digestBy(t, repo, place)
		if again, _ := digestBy(t, repo, place); err != nil || again != d {
			t.Fatalf("%s %s: %q, %q, %v", mode, principals, d, again, err)
		}
		return d
	}
	with := func(files ...string) *trusting {
		p := &trusting{}
		p.set(nil, files...)
		return p
	}
	seen := map[string]string{}
	for name, d := range map[string]string{
		"none": digest("", "", with("a.sshpub", public)), "head": digest("HEAD", "", with("a.sshpub", public)),
		"tag":        digest("Tag", "", with("a.sshpub", public)),
		"principals": digest("HEAD", "committer", with("a.sshpub", public)), "other key": digest("HEAD", "", with("a.sshpub", other)),
		"two keys": digest("HEAD", "", with("a.sshpub", public, "b.sshpub", other)), "no keys": digest("HEAD", "", with()),
		"bad keys": digest("HEAD", "", with("a.sshpub", "x")),
	} {
		if twice, found := seen[d]; found || (d == "") != (name == "none") {
			t.Errorf("%s and %s: %q", name, twice, d)
		}
		seen[d] = name
	}
	away := &trusting{}
	away.set(&kube.UnavailableError{})
	repo := api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://git.example.com/x"}}, GitVerify: "HEAD"}
	if d, err := digestBy(t, repo, away); err == nil || d != "" {
		t.Errorf("an API that is away is taken for no keys: %q", d)
	}
	if _, err := checkout.NewSigners(away.find, nil, nil).Trust(t.Context(), repo, auth.Lookup{}); !jobs.Transient(passing(err)) {
		t.Errorf("and not as passing: %v", err)
	}
}

// TestRuleOfTheConfiguration: what the configuration asks for is not taken away by who edits the
// Repository, be it the mode or the keys; and what that asks for counts too.
func TestRuleOfTheConfiguration(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		var place trusting
		key, public := sshKey(t)
		editors, editorsPublic := sshKey(t)
		rules := []auth.VerificationPolicy{{Repositories: []string{"*/repo"}, Mode: "HEAD", Values: map[string]string{"ops.sshpub": public}}}
		r := newRig(t, server, func(o *PullOptions) { o.Source.Signers = checkout.NewSigners(place.find, auth.NewList(rules), nil) })
		r.repository(nil, nil)
		r.commit("cpu.json", board("cpu", "CPU"))
		r.expect("unsigned, and the repository asks for nothing", false, "error", "is not signed")
		r.verified("False", "Unsigned")
		r.sign(editors)
		place.set(nil, "editor.sshpub", editorsPublic)
		r.annotate(api.AnnoGitVerify, "HEAD")
		r.expect("signed by a key of the repository alone", false, "error", "which is not the one key of verification rule */repo")
		r.verified("False", "UnknownKey")
		r.sign(key)
		r.expect("signed by the key of the rule alone", false, "error", "which is not the one key of the test")
		r.annotate(api.AnnoGitVerify, "")
		r.expect("the repository asks for nothing", true, "success", "", "POST folders/repo", "POST dashboards/cpu")
		_, u := r.sync()
		repo, err := api.RepositoryView(u)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range repo.Status.Conditions {
			if c.Type == api.ConditionVerified &&
				(c.Status != "True" || !strings.Contains(c.Message, "required by rule */repo of the configuration")) {
				t.Errorf("told as %+v", c)
			}
		}
		place.set(nil, "both.sshpub", public)
		r.annotate(api.AnnoGitVerify, "TagAndHEAD")
		r.expect("the repository asks for more", true, "error", "refs/heads/main is not a tag")
		r.annotate(api.AnnoGitVerify, "nonsense")
		r.expect("the repository asks for nonsense", true, "error", `unknown mode of verification "nonsense"`)
		r.annotate(api.AnnoGitVerify, "HEAD")
		r.expect("both are met", true, "success", "same commit as last sync")
	})
}

// TestKeysLook: what a person is told before keys end.
func TestKeysLook(t *testing.T) {
	t.Parallel()
	_, public := sshKey(t)
	_, other := sshKey(t)
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	until := func(d time.Duration) string { return `valid-before="` + now.Add(d).Format("20060102150405Z") + `" ` }
	repo := api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://git.example.com/x"}}, GitVerify: "HEAD",
		GitVerifyPrincipals: "committer, ops@example.com"}
	for name, c := range map[string]struct {
		list, text, soon, err string
	}{
		"for ever":      {list: "a@x " + public, text: "HEAD, by annotation limpet/git-verify: SHA256:"},
		"for a year":    {list: "a@x " + until(365*24*time.Hour) + public, text: "(a@x) until 2027-06-01; for committer, ops@example.com"},
		"for 15 days":   {list: "a@x " + until(15*24*time.Hour) + public, text: "until 2026-06-16"},
		"for 13 days":   {list: "a@x " + until(13*24*time.Hour) + public, text: "until 2026-06-14", soon: "ends in 13d"},
		"one has ended": {list: "a@x " + until(-time.Hour) + public + "b@x " + other, text: "(b@x)", soon: "which was valid until 2026-05-31"},
		"all ended":     {list: "a@x " + until(-time.Hour) + public, err: "none of its 1 key is of use: SHA256:"},
		"none":          {err: "there are no keys that may sign"},
		"unread":        {list: "a@x nothing", err: "allowed_signers: line 1"},
	} {
		var place trusting
		place.set(nil)
		if c.list != "" {
			place.set(nil, signature.AllowedSigners, c.list)
		}
		look, err := checkout.NewSigners(place.find, nil, nil).Look(t.Context(), "default", "repo", repo, now)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !strings.Contains(look.Text, c.text) ||
			(look.Soon == "") != (c.soon == "") || !strings.Contains(look.Soon, c.soon) {
			t.Errorf("%s: %+v, %v", name, look, err)
		}
	}
	repo.GitVerify = ""
	if look, err := checkout.NewSigners(nil, nil, nil).Look(t.Context(), "default", "repo", repo, now); err != nil || look != (checkout.KeysLook{}) {
		t.Errorf("nothing is asked: %+v, %v", look, err)
	}
}
