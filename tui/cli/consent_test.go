package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"limpet/tui/cli/command"
)

// looks are the commands that change nothing at the API or in the state file. A
// new command is either here or has the tag "writes".
var looks = []string{
	"completion", "config path", "config show", "config validate", "connection list", "connection show", "connection test", "crds",
	"dashboard", "doctor", "get", "history export", "history list", "history show",
	"job list", "job logs", "job show", "job watch", "man", "repo list", "repo open", "repo show", "repo test", "repo validate",
	"service print", "source get", "source list", "source show", "source test", "status", "store backup", "store check",
	"store info", "version",
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	commands, err := Commands()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		if commands[name] == slices.Contains(looks, name) {
			t.Errorf("limpet %s: the tag \"writes\" says %v, and the list of this test %v", name, commands[name], !slices.Contains(looks, name))
		}
	}
	s := newSite(t)
	s.Must(t, 0, "repo", "create", "boards", "--url", "https://git.example.com/boards.git")
	for _, call := range []string{"repo pull boards", "delete repository boards", "repo suspend boards", "history prune --keep 0",
		"store compact", "apply -f x", "job cancel x", "--daemon", "demo --once", "drain"} {
		if _, errs := s.Must(t, command.ExitUsage, append(strings.Fields(call), "--read-only")...); !strings.Contains(errs,
			"--read-only refuses that\n  try: limpet "+call+"    # without --read-only\n") {
			t.Errorf("%s: %s", call, errs)
		}
	}
	s.Must(t, 0, "repo", "show", "boards", "--read-only")
	s.Env["LIMPET_READ_ONLY"] = "true"
	s.Must(t, command.ExitUsage, "delete", "repository", "boards")
	if out, _ := s.Must(t, 0, "job", "list", "-o", "name"); out != "" {
		t.Errorf("jobs: %s", out)
	}
}

// TestPullDefaults: every way to ask for a pull asks for what changed, unless --full is given.
func TestPullDefaults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, tt := range []struct {
		call, incremental string
	}{
		{"job create %s", "true"}, {"job create %s --incremental", "true"}, {"job create %s --full", "false"},
		{"repo pull %s", "true"}, {"repo pull %s --full", "false"},
	} {
		name := fmt.Sprintf("boards-%d", i)
		s.Must(t, 0, "repo", "create", name, "--url", "https://git.example.com/"+name+".git")
		s.Must(t, 0, strings.Fields(fmt.Sprintf(tt.call, name))...)
		if out, _ := s.Must(t, 0, "job", "list", "--repository", name, "-o", "json"); !strings.Contains(out, `"incremental": `+tt.incremental) {
			t.Errorf("%s: %s", tt.call, out)
		}
	}
}
