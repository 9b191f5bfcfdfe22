package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestSignersOfSecretsAndRules: the keys of a Repository are in a Secret, and a rule of the
// config file asks besides. All that shows it says so, before keys end and afterwards; and
// who edits the Repository takes nothing away.
func TestSignersOfSecretsAndRules(t *testing.T) {
	t.Parallel()
	repo := testenv.EmptyRepo(t)
	board := repo.Add(t, "one.json")
	signer, public := sshSigner(t)
	_, otherPublic := sshSigner(t)
	signed := signHead(t, repo, signer)
	host := testenv.Git(t, testenv.GitOptions{})
	url := host.Serve("boards.git", repo.Dir)
	h := newHome(t)
	list := func(text string) { h.file(t, "allowed_signers", text) }
	list("ops@example.com " + otherPublic)
	config := h.file(t, "limpet.yaml", fmt.Sprintf("git-verify:\n- repositories: [default/free]\n  mode: none\n- url: \"*\"\n  mode: HEAD\n  files: {allowed_signers: %s}\n", filepath.Join(h.dir, "allowed_signers")))
	h.args = append(h.args, "--config", config)
	d := h.daemon(t)
	secret := func(key string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: signers, namespace: default}\nstringData:\n  ops.sshpub: %q\n", key)
	}
	object := func(name, annotations string) string {
		return fmt.Sprintf("---\napiVersion: provisioning.grafana.app/v0alpha1\nkind: Repository\nmetadata:\n  name: %s\n  namespace: default\n  annotations: {%s}\nspec:\n  title: Site\n  type: git\n  workflows: []\n  git: {url: %q, branch: %s}\n  sync: {enabled: true, target: folder, intervalSeconds: 3600}\nsecure:\n  verify: {name: signers}\n",
			name, annotations, url, testenv.Branch)
	}
	apply := func(text string) { h.must(t, 0, "apply", "-f", h.file(t, "objects.yaml", text)) }
	apply(secret(public) + object("site", `limpet/git-verify: HEAD`))

	told := func(what, name, status, reason string) api.Repository {
		t.Helper()
		var found api.Repository
		until(t, what, func() bool {
			found = api.Repository{}
			if err := json.Unmarshal([]byte(h.must(t, 0, "get", "repository", name, "-o", "json").out), &found); err != nil {
				t.Fatal(err)
			}
			for _, c := range found.Status.Conditions {
				if c.Type == api.ConditionVerified && c.Status == status && c.Reason == reason {
					return true
				}
			}
			return false
		})
		return found
	}
	says := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in:\n%s", w, text)
			}
		}
	}
	told("the rule has another key", "site", "False", "UnknownKey")
	if strings.Contains(h.must(t, 0, "get", "dashboards", "-o", "json").out, board.UID) {
		t.Error("what the rule refuses was written")
	}
	soon := time.Now().AddDate(0, 0, 9).UTC().Format("20060102150405Z")
	list(`ops@example.com valid-before="` + soon + `" ` + public)
	if got := told("the file of the rule has changed", "site", "True", "Verified"); got.Status.Sync.LastRef != signed {
		t.Errorf("pulled %+v", got.Status.Sync)
	}
	says(h.must(t, 0, "repo", "show", "site").out, "signatures", "HEAD, by annotation limpet/git-verify; HEAD, by rule for all repositories of "+config, "as rule for all repositories of the configuration wants it")
	says(h.must(t, 0, "repo", "test", "site").out, "signers", "by annotation limpet/git-verify: SHA256:", "by rule for all repositories of the configuration: SHA256:", "(ops@example.com) until "+soon[:4]+"-"+soon[4:6], "to be replaced: SHA256:", "ends in 8d")
	says(h.run(t, "doctor").out, "warn", "signers", "keys end within 14 days, or have ended, for 2 of 2 that ask", "limpet config show")

	// The editor takes out what is his.
	apply(object("site", ""))
	// The agent asks for pulls too; one at a time is taken.
	pulls := func(code int) {
		t.Helper()
		until(t, fmt.Sprintf("a pull ends with %d", code), func() bool { return h.run(t, "repo", "pull", "site", "--wait").code == code })
	}
	pulls(0)
	repo.Add(t, "two.json")
	pulls(7)
	told("an unsigned commit, and the repository does not ask", "site", "False", "Unsigned")
	apply(strings.Replace(object("free", ""), "target: folder", "target: folder", 1))
	until(t, "the exception is pulled", func() bool {
		return strings.Contains(h.must(t, 0, "repo", "show", "free").out, "success")
	})
	signHead(t, repo, signer)

	// A Secret with the wrong key.
	apply(secret(otherPublic) + object("site", `limpet/git-verify: HEAD`))
	told("the secret has another key", "site", "False", "UnknownKey")
	apply(secret(public))
	told("and the right one", "site", "True", "Verified")

	past := time.Now().AddDate(0, 0, -1).UTC().Format("20060102150405Z")
	list(`ops@example.com valid-before="` + past + `" ` + public)
	told("the key has ended", "site", "False", "Expired")
	says(h.run(t, "repo", "test", "site").out, "failed", "none of its 1 key is of use")
	says(h.run(t, "doctor").out, "fail", "have no keys of use here, the first is verification rule for all repositories")
	if err := os.Remove(filepath.Join(h.dir, "allowed_signers")); err != nil {
		t.Fatal(err)
	}
	told("the file of the rule is gone", "site", "False", "NoKeys")
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
