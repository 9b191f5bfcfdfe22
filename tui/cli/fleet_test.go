package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"limpet/tui/cli/command"
	"limpet/tui/cli/fleet"
)

// TestFleet: of a server and of a kubeconfig the objects are read, of a state file what its agent shows;
// the exit code says whether one of those that were chosen needs attention.
func TestFleet(t *testing.T) {
	t.Parallel()
	a, near := server(t, "of-a"), newSite(t)
	near.Daemon(t, nil)
	s := newSite(t)
	write := func(name, text string) string {
		path := filepath.Join(s.Dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := write("kubeconfig", fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: %q}}], "+
		"users: [{name: x, user: {}}], contexts: [{name: x, context: {cluster: x, user: x}}]}", a))
	s.Env["LIMPET_CONFIG"] = write("config.yaml", fmt.Sprintf("contexts:\n- {name: a, provisioning-server-url: %q}\n- {name: b, kubeconfig: %q}\n"+
		"- {name: c, state: %q}\n- {name: d, state: %q}\n- {name: e, provisioning-server-url: 'http://127.0.0.1:1'}\n"+
		"- {name: f, kubeconfig: /none}\n", a, kubeconfig, near.Env["LIMPET_STATE"], filepath.Join(s.Dir, "none.db")))
	for _, tt := range []struct {
		code  int
		args  []string
		state map[string]string
	}{
		{0, []string{"a", "b", "c"}, map[string]string{"a": "ok", "b": "ok", "c": "ok"}},
		{0, []string{"[ab]"}, map[string]string{"a": "ok", "b": "ok"}},
		{command.ExitError, nil, map[string]string{"a": "ok", "b": "ok", "c": "ok", "d": "unreachable", "e": "unreachable", "f": "unreachable"}},
	} {
		code, out, errs := s.Call(append([]string{"fleet", "status", "-o", "json"}, tt.args...)...)
		var list struct{ Items []fleet.Site }
		if err := json.Unmarshal([]byte(out), &list); err != nil || code != tt.code || len(list.Items) != len(tt.state) {
			t.Fatalf("%q: exit %d, %v: %s%s", tt.args, code, err, out, errs)
		}
		for _, row := range list.Items {
			if ok := row.State == "ok"; row.State != tt.state[row.Name] || row.OK != ok || (row.Repositories == 1) != (ok && row.Kind != command.ContextState) || ok == (len(row.Why) == 1) {
				t.Errorf("%+v, want %s", row, tt.state[row.Name])
			}
		}
	}
	for _, name := range []string{"a", "b"} {
		if out, _ := s.Must(t, 0, "--context", name, "repo", "list", "-o", "name"); out != "repository/of-a\n" {
			t.Errorf("in the context %s: %q", name, out)
		}
	}
}
