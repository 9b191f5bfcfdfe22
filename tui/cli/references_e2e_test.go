package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"limpet/sync/testenv"
)

// TestCredentialsAreCorrected: a site whose credentials are not there yet, then
// wrong, then right, then wrong again. Each has effect within seconds, and not at
// the next check, which is a minute or five away.
func TestCredentialsAreCorrected(t *testing.T) {
	t.Parallel()
	host := testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken})
	url := host.Serve("boards.git", testenv.Repo(t, 1, 1).Dir)
	ca, err := os.ReadFile(host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	dir := filepath.Join(h.dir, "credentials")
	d := h.daemon(t, "--credentials-dir", dir)
	h.must(t, 0, "repo", "create", "site", "--url", url)
	health := func(what, reason string) {
		t.Helper()
		began := time.Now()
		until(t, what, func() bool {
			var repo struct {
				Status struct {
					Conditions []struct{ Type, Reason string }
				}
			}
			if err := json.Unmarshal([]byte(h.must(t, 0, "get", "repository", "site", "-o", "json").out), &repo); err != nil {
				t.Fatal(err)
			}
			for _, c := range repo.Status.Conditions {
				if c.Type == "Ready" {
					return c.Reason == reason
				}
			}
			return false
		})
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: after %s", what, took)
		}
	}
	health("no directory", "ServiceUnavailable")
	h.file(t, "credentials/default.site/ca.crt", string(ca))
	h.file(t, "credentials/default.site/token", "wrong")
	health("a wrong token", "AuthenticationFailed")
	h.file(t, "credentials/default.site/token", gitToken+"\n")
	health("the right one", "Available")
	h.file(t, "credentials/default.site/token", "expired")
	health("one that has expired", "AuthenticationFailed")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	health("none", "ServiceUnavailable")
	h.noSecret(t, d.log.String(), gitToken)
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
