package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/kube"
	"limpet/sync/signature"
)

// TestRuleOfTheConfiguration: what the configuration asks for is not taken away by who
// edits the Repository, be it the mode or the keys; and what that asks for counts too.
func TestRuleOfTheConfiguration(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		var place trusting
		key, public := sshKey(t)
		editors, editorsPublic := sshKey(t)
		rules := []auth.VerificationPolicy{{Repositories: []string{"*/repo"}, Mode: "HEAD", Values: map[string]string{"ops.sshpub": public}}}
		r := newRig(t, server, func(o *PullOptions) { o.Signers = NewSigners(place.find, rules, nil) })
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
			if c.Type == api.ConditionVerified && (c.Status != "True" || !strings.Contains(c.Message, "as rule */repo of the configuration wants it")) {
				t.Errorf("told as %+v", c)
			}
		}
		place.set(nil, "both.sshpub", public)
		r.annotate(api.AnnoGitVerify, "TagAndHEAD")
		r.expect("the repository asks for more", true, "error", "refs/heads/main is no tag")
		r.annotate(api.AnnoGitVerify, "nonsense")
		r.expect("the repository asks for nonsense", true, "error", `unknown mode of verification "nonsense"`)
		r.annotate(api.AnnoGitVerify, "HEAD")
		r.expect("both are met", true, "success", "same commit as last sync")
	})
}

// TestSignersRead: keys are read once for as long as they are the same, and the files of a
// rule are told of before they are read.
func TestSignersRead(t *testing.T) {
	t.Parallel()
	_, public := sshKey(t)
	file := t.TempDir() + "/none"
	var place trusting
	place.set(nil, "a.sshpub", public)
	var saw []string
	s := NewSigners(place.find, []auth.VerificationPolicy{{URL: "git.example.com/ruled", Mode: "HEAD", Files: map[string]string{"a.sshpub": file}}}, func(path string) { saw = append(saw, path) })
	at := func(path, mode string) (api.Repository, auth.Lookup) {
		url := "https://git.example.com/" + path
		return api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: url}}, GitVerify: mode}, auth.Lookup{Namespace: "default", Repository: "repo", URL: url}
	}
	repo, l := at("x", "HEAD")
	first, err := s.of(t.Context(), repo, l)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.of(t.Context(), repo, l)
	if err != nil || first.digest != again.digest || len(saw) != 0 {
		t.Errorf("%v, saw %q", err, saw)
	}
	repo, l = at("ruled", "")
	found, err := s.of(t.Context(), repo, l)
	if signature.KindOf(err) != signature.NoKeys || found == nil || found.digest == "" || len(saw) != 1 || saw[0] != file {
		t.Errorf("a rule whose file is not there: %v, %+v, saw %q", err, found, saw)
	}
	repo, l = at("free", "")
	if found, err := s.of(t.Context(), repo, l); found != nil || err != nil {
		t.Errorf("nothing is asked: %+v, %v", found, err)
	}
	repo, l = at("free", "")
	repo.GitMirrors = "https://git.example.com/other git@git.example.com:ruled.git"
	if found, err := s.of(t.Context(), repo, l); signature.KindOf(err) != signature.NoKeys || found == nil || len(found.demands) != 1 {
		t.Errorf("a rule for the url of a mirror: %+v, %v", found, err)
	}
	var none *Signers
	repo, l = at("x", "HEAD")
	if found, err := none.of(t.Context(), repo, l); signature.KindOf(err) != signature.NoKeys || found == nil {
		t.Errorf("without keys: %+v, %v", found, err)
	}
}

// TestSignersLook: what a person is told before keys end.
func TestSignersLook(t *testing.T) {
	t.Parallel()
	_, public := sshKey(t)
	_, other := sshKey(t)
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	until := func(d time.Duration) string { return `valid-before="` + now.Add(d).Format("20060102150405Z") + `" ` }
	repo := api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://git.example.com/x"}}, GitVerify: "HEAD", GitVerifyPrincipals: "committer, ops@example.com"}
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
		look, err := NewSigners(place.find, nil, nil).Look(t.Context(), "default", "repo", repo, now)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !strings.Contains(look.Text, c.text) || (look.Soon == "") != (c.soon == "") || !strings.Contains(look.Soon, c.soon) {
			t.Errorf("%s: %+v, %v", name, look, err)
		}
	}
	var many []string
	for range mostHolders + 2 {
		_, public := sshKey(t)
		many = append(many, public)
	}
	s := NewSigners(nil, nil, nil)
	look, err := s.LookAtRule(&auth.VerificationPolicy{Mode: "Tag", Values: map[string]string{"a.sshpub": strings.Join(many, "")}}, now)
	if err != nil || strings.Count(look.Text, "SHA256:") != mostHolders || !strings.HasSuffix(look.Text, " and 2 more") {
		t.Errorf("%+v, %v", look, err)
	}
	if look, err := s.LookAtRule(&auth.VerificationPolicy{Mode: auth.PolicyNone}, now); err != nil || look.Text != "" {
		t.Errorf("a rule that asks for nothing: %+v, %v", look, err)
	}
	repo.GitVerify = ""
	if look, err := s.Look(t.Context(), "default", "repo", repo, now); err != nil || look != (SignersLook{}) {
		t.Errorf("nothing is asked: %+v, %v", look, err)
	}
}

// TestJudge: what an agent says besides pulls.
func TestJudge(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	key, public := sshKey(t)
	_, other := sshKey(t)
	r.commit("cpu.json", board("cpu", "CPU"))
	signed := r.sign(key)
	remote := git.Remote{URL: r.url}
	ref, err := r.mirrors.Resolve(t.Context(), remote, gitref.Branch("main"))
	if err != nil || ref.Hash != signed {
		t.Fatalf("%+v, %v", ref, err)
	}
	repo := api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: r.url}}, GitVerify: "HEAD"}
	for name, c := range map[string]struct {
		key, mode      string
		away           error
		want, contains string // status, "" = nothing is said
	}{
		"good":        {key: public, mode: "HEAD", want: "True", contains: "is signed by SHA256:"},
		"other keys":  {key: other, mode: "HEAD", want: "False", contains: "which is not the one key"},
		"no tag":      {key: public, mode: "Tag", want: "False", contains: "is no tag"},
		"bad mode":    {key: public, mode: "x", want: "False", contains: "unknown mode"},
		"no keys":     {mode: "HEAD"},
		"not asked":   {key: public},
		"bad keys":    {key: "x", mode: "HEAD"},
		"keys afield": {mode: "HEAD", away: &kube.UnavailableError{}},
	} {
		var place trusting
		var list []string
		if c.key != "" {
			list = []string{"a.sshpub", c.key}
		}
		place.set(c.away, list...)
		repo.GitVerify = c.mode
		said, err := NewSigners(place.find, nil, nil).Judge(t.Context(), r.mirrors, "default", "repo", repo, remote, ref, time.Now())
		switch {
		case (err == nil) != (c.away == nil):
			t.Errorf("%s: %v", name, err)
		case (said == nil) != (c.want == "") || said != nil && (said.Status != c.want || !strings.Contains(said.Message, c.contains)):
			t.Errorf("%s: %+v, want %s %q", name, said, c.want, c.contains)
		}
	}
	repo.GitVerify = "HEAD"
	var place trusting
	place.set(nil, "a.sshpub", public)
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	ref.Hash = strings.Repeat("1", 40)
	if said, err := NewSigners(place.find, nil, nil).Judge(gone, r.mirrors, "default", "repo", repo, remote, ref, time.Now()); said != nil || err == nil {
		t.Errorf("a commit that cannot be had: %+v, %v", said, err)
	}
}
