package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// TestKilledBetweenVerifyAndApply: an agent that verifies, by a rule of its config file, is
// killed before, between and after verification and application, again and again. Nothing
// that is not signed is ever written, and nothing that is signed is lost.
func TestKilledBetweenVerifyAndApply(t *testing.T) {
	t.Parallel()
	first, w := seeded(t), newWorld(t)
	m := newMortal(t, w, "kill-verify", first, map[string]int{"a": small})
	m.fails = true // what is not signed is refused
	signer, public := sshSigner(t)
	m.file(t, "allowed_signers", "ops@example.com "+public)
	config := m.file(t, "limpet.yaml", fmt.Sprintf("git-verify:\n- url: \"*\"\n  mode: HEAD\n  principals: [ops@example.com]\n  files: {allowed_signers: %s/allowed_signers}\n", m.dir))
	m.args = append(m.args, "--config", config)
	mark := w.api.Mark(t)
	evil := map[int]bool{} // revisions that are not signed
	killedAt := func(point string) {
		t.Helper()
		m.pull("a", nil)
		l := m.start(point + "=kill")
		if !m.end(l) {
			t.Fatalf("not killed at %s", point)
		}
	}
	kills := 0
	for range times(1, 10) {
		for _, point := range []string{failpoint.Claimed, failpoint.Fetched, failpoint.Verified, failpoint.Planned, failpoint.Applying, failpoint.Worked, failpoint.Recorded} {
			m.edit("a")
			if point != failpoint.Verified && point != failpoint.Planned && point != failpoint.Applying { // to which nothing comes that is not signed
				evil[m.revision["a"]] = true
				killedAt(point)
				kills++
				m.rest()
				m.edit("a")
			}
			signHead(t, m.repo, signer)
			killedAt(point)
			kills++
			m.rest()
			m.content()
		}
	}
	m.edit("a")
	evil[m.revision["a"]] = true
	m.pull("a", nil)
	m.rest()
	m.edit("a")
	evil[m.revision["a"]] = true
	m.pull("a", nil)
	m.rest()
	signHead(t, m.repo, signer)
	delete(evil, m.revision["a"]) // signed after all, and not applied before
	m.pull("a", nil)
	m.rest()
	m.judge()
	writes := 0
	for _, q := range w.api.Requests(t, mark) {
		if !strings.Contains(q.Path, "/namespaces/"+m.namespace+"/dashboards") || q.Method == "GET" {
			continue
		}
		writes++
		for revision := range evil {
			if strings.Contains(string(q.Body), fmt.Sprintf(`"revision %d"`, revision)) {
				t.Errorf("revision %d is not signed and was written: %s", revision, q)
			}
		}
	}
	refused := 0
	for _, r := range m.history(t) {
		if r.State == "error" {
			refused++
			if !strings.Contains(r.Message, "is not signed") {
				t.Errorf("job %s: %s", r.Name, r.Message)
			}
		}
	}
	if refused != len(evil)+1 || writes == 0 {
		t.Errorf("%d jobs were refused of %d, %d writes", refused, len(evil)+1, writes)
	}
	repo, err := api.RepositoryView(&m.list(api.Repositories)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range repo.Status.Conditions {
		if c.Type == api.ConditionVerified && (c.Status != "True" || !strings.Contains(c.Message, "wants it")) {
			t.Errorf("at the end: %+v", c)
		}
	}
	t.Logf("fault: verification: %d kills, %d jobs, %d refused, %d writes", kills, len(m.jobs), refused, writes)
}
