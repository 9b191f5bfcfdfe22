package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

func TestRepoSet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "dash", "--url", "https://git.example.com/x.git", "--branch", "main", "--path", "grafana")
	for _, tt := range []struct {
		call string
		code int
		want []string // in the object; with - not there
	}{
		{"--interval 5m --branch next", 0, []string{"intervalSeconds: 300", "branch: next", "path: grafana", "url: https://git.example.com/x.git"}},
		{"--path= --title Dash", 0, []string{"-path:", "title: Dash", "branch: next"}},
		{"--no-enabled --ref semver:1.x", 0, []string{"enabled: false", "limpet/git-ref: semver:1.x"}},
		{"--ref=", 0, []string{"-limpet/git-ref"}},
		{"--enabled --interval 1s", 0, []string{"intervalSeconds: 10"}},
		{"--interval 5m", 0, []string{"intervalSeconds: 300"}},
		{"--workflows write,branch", 0, []string{"workflows:\n  - write\n  - branch\n"}},
		{"--workflows=", 0, []string{"-workflows"}},
		{"--workflows write,read", 2, []string{"-workflows"}},
		{"--drift off --drift-ignore /spec/version --report-status --pr-comment new", 0, []string{"limpet/drift: \"off\"",
			"limpet/drift-ignore: /spec/version", "limpet/commit-status: \"true\"", "limpet/pr-comment: new"}},
		{"--pr-comment= --no-report-status --no-lfs --submodules --sink-dir /srv/x --no-sink-strict --sink-run [\"/bin/true\"]", 0,
			[]string{"-limpet/pr-comment", "limpet/commit-status: \"false\"", "limpet/git-lfs: \"false\"", "limpet/git-submodules: \"true\"",
				"limpet/sink-dir: /srv/x", "limpet/sink-strict: \"false\"", "limpet/sink-exec: '[\"/bin/true\"]'"}},
		{"--drift sometimes", 2, nil}, {"--sink-run true", 2, nil}, {"--sink-dir=", 0, []string{"-limpet/sink-dir"}},
		{"", 2, nil}, {"--interval 10ms", 2, nil},
		{"--interval 1500ms", 2, nil}, {"--interval soon", 2, nil}, {"--frob x", 2, nil}, {"--target moon", 2, nil},
		{"--ref frob:x", 2, nil}, {"--verify loud", 2, nil}, {"--branch a..b", 2, nil}, {"--branch a --ref tag:b", 2, nil},
		{"--unpin", 2, []string{"branch: next", "intervalSeconds: 300", "title: Dash"}},
	} {
		s.Must(t, tt.code, append([]string{"repo", "set", "dash"}, strings.Fields(tt.call)...)...)
		got, _ := s.Must(t, 0, "get", "repository", "dash", "-o", "yaml")
		for _, want := range tt.want {
			if text, absent := strings.CutPrefix(want, "-"); strings.Contains(got, text) == absent {
				t.Errorf("set %s: %q in\n%s", tt.call, want, got)
			}
		}
	}
	s.Must(t, 1, "repo", "set", "none", "--title", "x")
	s.Must(t, 0, "repo", "create", "written", "--url", "https://git.example.com/x.git", "--workflows", "branch")
	s.Must(t, 1, "repo", "create", "read", "--url", "https://git.example.com/x.git", "--workflows", "read")
	for _, call := range []string{"set dash --interval 1s", "create other --url https://git.example.com/y.git --interval 1s"} {
		if _, errs := s.Must(t, 0, append([]string{"repo"}, strings.Fields(call)...)...); !strings.Contains(errs, "10s") {
			t.Errorf("%s: does not tell the stored interval: %s", call, errs)
		}
	}
	s.Must(t, 0, "repo", "set", "dash", "--ref", "commit:"+strings.Repeat("a", 40)) // is meant so
	if out, _ := s.Must(t, command.ExitError, "status"); strings.Contains(out, "pinned") {
		t.Errorf("status warns of a chosen commit: %s", out)
	}
}

// TestPullOfASuspendedRepository is made, and says that no other follows.
func TestPullOfASuspendedRepository(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "dash", "--url", "https://git.example.com/x.git")
	s.Must(t, 0, "repo", "suspend", "dash")
	if _, errs := s.Must(t, 0, "repo", "pull", "dash"); !strings.Contains(errs, "limpet repo resume dash") {
		t.Errorf("%s", errs)
	}
	_, errs := s.Must(t, 0, "repo", "create", "other", "--url", "https://git.example.com/x.git", "--sink-dir", "/srv/x")
	if !strings.Contains(errs, "--sink-prefix") {
		t.Errorf("%s", errs)
	}
	for _, call := range []string{"history list --repo dash", "history list --repository dash", "job list --repo dash"} {
		s.Must(t, 0, strings.Fields(call)...)
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "dash", "--url", "https://git.example.com/x.git", "--ref", "semver:1.x")
	commits := map[string]string{}
	for i, name := range strings.Split("c b a", " ") { // the newest first
		commits[name] = strings.Repeat(name, 40)
		for _, end := range []string{"success", "error"} {
			r := clitest.Record(name+end, "default", "dash", end, time.Duration(i)*time.Hour)
			if r.RefTo = commits[name]; end == "error" {
				r.RefTo = strings.Repeat("d", 40)
			}
			s.Record(t, []state.Record{r}...)
		}
	}
	ref := func(want string) {
		t.Helper()
		if got, _ := s.Must(t, 0, "get", "repository", "dash", "-o", "yaml"); !strings.Contains(got, "limpet/git-ref: "+want+"\n") {
			t.Errorf("pulls not %s:\n%s", want, got)
		}
	}
	for _, call := range []string{"", "--to-previous aaaa", "dddd", "eeee"} {
		s.Must(t, 2, append([]string{"repo", "rollback", "dash"}, strings.Fields(call)...)...)
	}
	ref("semver:1.x")
	s.Must(t, 0, "repo", "rollback", "dash", "bbbb")
	ref("commit:" + commits["b"])
	for call, code := range map[string]int{"repo show dash": 0, "repo list": 0, "status": command.ExitError} {
		if out, _ := s.Must(t, code, strings.Fields(call)...); !strings.Contains(out, "pinned") {
			t.Errorf("%s: %s", call, out)
		}
	}
	s.Must(t, 0, "repo", "rollback", "dash", "--to-previous") // nothing was pulled yet: the newest commit
	ref("commit:" + commits["c"])
	s.Must(t, 0, "repo", "set", "dash", "--unpin")
	ref("semver:1.x") // An edit may remove the pin alone: a rollback from a branch has no other ref to come back to.
	s.Must(t, 0, "repo", "rollback", "dash", "bbbb")
	s.Env["EDITOR"] = "sed -i /git-ref:/d"
	s.Must(t, 0, "edit", "repo", "dash", "--yes")
	s.Must(t, 0, "repo", "rollback", "dash", "bbbb")
	if out, _ := s.Must(t, command.ExitError, "status"); !strings.Contains(out, "pinned") {
		t.Errorf("status does not warn: %s", out)
	}
	s.Must(t, 0, "repo", "set", "dash", "--unpin")
	if got, _ := s.Must(t, 0, "get", "repository", "dash", "-o", "yaml"); strings.Contains(got, "limpet/git-ref") {
		t.Errorf("pulls no branch:\n%s", got)
	}
}

// TestSourceCreate: what is wrong is refused before anything is written; what is right is in the object.
func TestSourceCreate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	create := []string{"source", "create", "fleet", "--url", "https://git.example.com/fleet.git"}
	with := func(flags string) []string { return append(slices.Clone(create), strings.Fields(flags)...) }
	for _, wrong := range []string{"--url=file:///srv/x", "--url=", "--tag=v1 --branch=main", "--verify=HEAD", "--interval=0s", "--ignore=@none",
		"--git-token-file=none", "--include=:a", "--commit=abc", "--semver=x.y.z.w", "--ref-name=main", "--secret=a --git-token-file=b",
		"--secret=A_b", "--git-token-file=/dev/null", "--verify=Tag --verify-secret=keys"} {
		if _, errs := s.Must(t, command.ExitUsage, with(wrong)...); !strings.Contains(errs, "try: ") {
			t.Errorf("%s: %s", wrong, errs)
		}
	}
	s.Must(t, command.ExitError, with("--wait")...) // no agent runs
	token := filepath.Join(s.Dir, "token")
	if err := os.WriteFile(token, []byte("hunter22\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{
		"": `{"interval":"1m0s","ref":{"branch":"main"},"timeout":"60s","url":"https://git.example.com/fleet.git"}`,
		"--semver=1.x --interval=10m --include=apps:grafana:a --include=base --sparse=deploy --recurse-submodules --ignore=/*": `{"ignore":"/*",` +
			`"include":[{"fromPath":"grafana","repository":{"name":"apps"},"toPath":"a"},{"repository":{"name":"base"}}],"interval":"10m0s",` +
			`"recurseSubmodules":true,"ref":{"semver":"1.x"},"sparseCheckout":["deploy"],"timeout":"60s","url":"https://git.example.com/fleet.git"}`,
		"--branch=main --commit=" + strings.Repeat("ab", 20) + " --verify-secret=keys --git-token-file=" + token: `{"interval":"1m0s","ref":{"branch":"main",` +
			`"commit":"` + strings.Repeat("ab", 20) + `"},"secretRef":{"name":"fleet-git"},"timeout":"60s","url":"https://git.example.com/fleet.git",` +
			`"verify":{"mode":"HEAD","secretRef":{"name":"keys"}}}`,
	} {
		out, _ := s.Must(t, 0, with("--dry-run -o json "+flags)...)
		var u struct{ Spec any }
		if err := json.Unmarshal([]byte(out), &u); err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(u.Spec); string(got) != want {
			t.Errorf("%s:\n%s, want\n%s", flags, got, want)
		}
	}
	for _, kind := range []string{"gitrepositories", "secrets"} {
		if out, _ := s.Must(t, 0, "get", kind, "-o", "name"); out != "" {
			t.Errorf("written: %s", out)
		}
	}
	s.Must(t, 0, with("--git-token-file="+token)...)
	if out, _ := s.Must(t, 0, "get", "secrets", "-o", "name"); out != "secret/fleet-git\n" {
		t.Errorf("secrets: %s", out)
	}
	if _, errs := s.Must(t, command.ExitError, create...); !strings.Contains(errs, "try: limpet source show fleet") {
		t.Errorf("again: %s", errs)
	}
}
