package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// sshSigner makes a key of ssh and returns the options of git that sign with it, and its public half.
func sshSigner(t *testing.T) (options []string, public string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	data, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + file}, string(data)
}

// signHead puts a signed commit with the same content in the place of the newest.
func signHead(t *testing.T, repo *testenv.Repository, options []string) string {
	t.Helper()
	id := repo.Git(t, append(options, "commit-tree", "-S", "-m", "signed", "HEAD^{tree}")...)
	repo.Git(t, "update-ref", "refs/heads/"+testenv.Branch, id)
	return id
}

// TestSignedSite: a site that pulls what is signed by its keys and nothing else, and
// looks again within seconds when the keys change.
func TestSignedSite(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	repo := testenv.EmptyRepo(t)
	board := repo.Add(t, "one.json")
	signer, public := sshSigner(t)
	other, otherPublic := sshSigner(t)
	good := signHead(t, repo, signer)
	host := testenv.Git(t, testenv.GitOptions{})
	url := host.Serve("boards.git", repo.Dir)
	h := newHome(t)
	dir := filepath.Join(h.dir, "credentials")
	keys := func(text string) { h.file(t, "credentials/default.site/allowed_signers", text) }
	d := h.daemon(t, "--credentials-dir", dir)
	h.must(t, 0, "repo", "create", "site", "--url", url, "--verify", "HEAD")

	var object api.Repository
	told := func(what, status, reason string) {
		t.Helper()
		began := time.Now()
		var found api.Condition
		until(t, what, func() bool {
			object = api.Repository{}
			if err := json.Unmarshal([]byte(h.must(t, 0, "get", "repository", "site", "-o", "json").out), &object); err != nil {
				t.Fatal(err)
			}
			for _, c := range object.Status.Conditions {
				if c.Type == api.ConditionVerified {
					found = c
				}
			}
			return found.Status == status && found.Reason == reason
		})
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: after %s", what, took)
		}
	}
	titles := func() string { return h.must(t, 0, "get", "dashboards", "-o", "json").out }

	told("no keys", "False", "NoKeys")
	if strings.Contains(titles(), board.UID) {
		t.Error("something was pulled without keys")
	}
	keys("ops@example.com " + public)
	told("the keys", "True", "Verified")
	if object.Status.Sync.LastRef != good || !strings.Contains(titles(), board.UID) {
		t.Errorf("pulled %+v", object.Status.Sync)
	}

	evil := repo.Add(t, "two.json")
	h.must(t, 7, "repo", "pull", "site", "--wait")
	told("an unsigned commit", "False", "Unsigned")
	if object.Status.Sync.LastRef != good || object.Status.Sync.State != api.StateError {
		t.Errorf("after an unsigned commit: %+v", object.Status.Sync)
	}
	if got := titles(); strings.Contains(got, evil.UID) || !strings.Contains(got, board.UID) {
		t.Errorf("dashboards after an unsigned commit:\n%s", got)
	}
	better := signHead(t, repo, signer)
	h.must(t, 0, "repo", "pull", "site", "--wait")
	told("signed after all", "True", "Verified")
	if object.Status.Sync.LastRef != better || !strings.Contains(titles(), evil.UID) {
		t.Errorf("after it was signed: %+v", object.Status.Sync)
	}

	keys("ops@example.com " + otherPublic)
	told("the key was rotated, the commit is the same", "False", "UnknownKey")
	if object.Status.Sync.LastRef != better || !strings.Contains(titles(), evil.UID) {
		t.Errorf("after the key was rotated: %+v", object.Status.Sync)
	}
	keys("ops@example.com " + otherPublic + "ops@example.com " + public)
	told("both keys", "True", "Verified")
	signHead(t, repo, other)
	h.must(t, 0, "repo", "pull", "site", "--wait")
	told("signed by the new one", "True", "Verified")
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
