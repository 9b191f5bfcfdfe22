package cli

import (
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/tui/cli/clitest"
	"limpet/tui/cli/command"
)

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
