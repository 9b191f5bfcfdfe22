package cli_test

import (
	"strings"
	"testing"

	"limpet/sync/apitest"
)

// TestUnreadableProxy: an agent whose proxy of the environment cannot be read says so
// at its start, starts all the same, and goes around that proxy for nobody.
func TestUnreadableProxy(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3t-canary-of-the-environment"
	h := newHome(t)
	h.env = append(h.env, "HTTP_PROXY=http:/ann:"+canary+"@proxy.example.com:3128", "NO_PROXY=10.0.0.0/99,127.0.0.1")
	repo := apitest.Repo(t, 1, 2)
	host := apitest.Git(t, apitest.GitOptions{})
	d := h.daemon(t, "--sink-prefix", h.dir)
	for name, url := range map[string]string{"near": host.Serve("near.git", repo.Dir), "far": "http://git.nowhere.invalid/far.git"} {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", apitest.Branch, "--path", apitest.Directory, "--interval", "24h")
	}
	until(t, "what needs no proxy is pulled", func() bool { return h.run(t, "repo", "pull", "near", "--wait").code == 0 })
	told := ""
	until(t, "what needs it says why it is not", func() bool {
		told = h.run(t, "repo", "show", "far").out
		return strings.Contains(told, "HTTP_PROXY is ") && strings.Contains(told, "start the agent again")
	})
	doctor := h.run(t, "doctor")
	if doctor.code == 0 || !strings.Contains(doctor.out, "HTTP_PROXY is ") {
		t.Errorf("doctor: exit %d: %s", doctor.code, doctor.out)
	}
	d.stop(t)
	for _, want := range []string{"HTTP_PROXY is ", "NO_PROXY has "} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	h.noSecret(t, d.log.String()+told+doctor.out+doctor.err, canary)
}
