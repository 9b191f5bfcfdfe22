package command

import (
	"os"
	"strings"
	"testing"
)

// TestNextCall: the next command of an error has the state file, the server and the
// namespace of the call.
func TestNextCall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct{ call, hint, want string }{
		{"job list", CommandFor("default", "job watch a"), "limpet job watch a"},
		{"job list", CommandFor("edge", "job watch a"), "limpet job watch a -n edge"},
		{"job list -n edge", CommandFor("default", "job watch a"), "limpet job watch a -n default"},
		{"job list -n edge", CommandFor("", "repo list"), "limpet repo list -n edge"},
		{"job list -n *", CommandFor("", "repo list"), "limpet repo list"},
		{"job list --namespace=edge", "limpet --daemon    # in another terminal", "limpet --daemon    # in another terminal"},
		{"--state /a/b.db job list", CommandFor("edge", "job watch a"), "limpet job watch a -n edge --state /a/b.db"},
		{"--state /a/b.db job list", "limpet --state FILE    # on another disk", "limpet --state FILE    # on another disk"},
		{"--state /a/b.db job list", "limpet    # starts an agent; or give another --state FILE",
			"limpet --state /a/b.db    # starts an agent; or give another --state FILE"},
		{"--state /a/it's job list", "limpet job list; limpet history list",
			`limpet job list --state '/a/it'\''s'; limpet history list --state '/a/it'\''s'`},
		{"--state /a/b.db job list", "limpet crds | kubectl apply -f -", "limpet crds | kubectl apply -f -"},
		{"--state /a/b.db job list", "limpet job list --help", "limpet job list --help"},
		{"--state /a/b.db job list", "free space on the disk", "free space on the disk"},
		{"--state /a/b.db job list", CommandFor("default", "source get x --file -") + " | tar tz",
			"limpet source get x --file - --state /a/b.db | tar tz"},
		{"--state /a/b.db job list -n edge", CommandFor("default", "source get x --file -") + " | tar tz",
			"limpet source get x --file - -n default --state /a/b.db | tar tz"},
		{"--state /a/b.db job list", CommandFor("default", "source get x") + " --file 'a b'    # elsewhere",
			"limpet source get x --file 'a b' --state /a/b.db    # elsewhere"},
		{"--state /a/b.db job list", CommandFor("edge", "source get x") + " --via URL", "limpet source get x -n edge --via URL --state /a/b.db"},
		{"--state /a/b.db job list", "limpet store info    # free space, or: limpet history prune --older-than 24h",
			"limpet store info --state /a/b.db    # free space, or: limpet history prune --older-than 24h --state /a/b.db"},
		{"--state /a/b.db job list", "kubectl -n flux-system port-forward svc/x 8080:80    # then: " + CommandFor("edge", "source get x"),
			"kubectl -n flux-system port-forward svc/x 8080:80    # then: limpet source get x -n edge --state /a/b.db"},
		{"--provisioning-server-url https://h --token s3cret --no-tls-insecure --tls-ca-file /c job list", "limpet status",
			"limpet status --provisioning-server-url https://h --tls-insecure=false --tls-ca-file /c"},
		{"--kubeconfig /k job list", "limpet doctor --kubeconfig FILE", "limpet doctor --kubeconfig FILE"},
	} {
		e, call, err := s.parse(strings.Fields(c.call)...)
		if err != nil {
			t.Fatal(err)
		}
		if got := newInvocation(call, e.Flags, e.Config, nil).Complete(c.hint); got != c.want {
			t.Errorf("%s: %q, want %q", c.call, got, c.want)
		}
	}
	s.Env["LIMPET_NAMESPACE"], s.Env["LIMPET_STATE"] = "edge", "/x.db"
	e, call, err := s.parse("job", "list")
	if err != nil {
		t.Fatal(err)
	}
	f := newInvocation(call, e.Flags, e.Config, nil)
	if got := f.Complete(CommandFor("default", "repo show a") +
		"; limpet repo list"); got != "limpet repo show a -n default; limpet repo list" {
		t.Errorf("with the namespace and the file of the environment: %q", got)
	}
	if got := f.Elsewhere().Complete("limpet repo list"); got != "limpet repo list --state /x.db -n edge" {
		t.Errorf("in another terminal: %q", got)
	}
	f.args = []string{"repo", "pull", "a b", "--timeout", "1s", "--wait"}
	if got := f.WithFlag("--timeout", "2s"); got != "limpet repo pull 'a b' --wait --timeout 2s" {
		t.Errorf("again: %q", got)
	}
	f.args = []string{"--timeout=1s", "status"}
	if got := f.WithFlag("--timeout", "2s"); got != "limpet status --timeout 2s" {
		t.Errorf("again: %q", got)
	}
	f.args = []string{"history", "prune", "--keep", "0", "--read-only"}
	if got := f.WithFlag("--yes", ""); got != "limpet history prune --keep 0 --read-only --yes" {
		t.Errorf("again: %q", got)
	}
	if got := f.without("--read-only", 0); got != "limpet history prune --keep 0" {
		t.Errorf("without: %q", got)
	}
	if e, call, err = s.parse("--state", "x/y.db", "--token", "s3cret", "--provisioning-server-url", "https://u:s3cret@h", "-n", "edge", "demo"); err != nil {
		t.Fatal(err)
	}
	dir, _ := os.Getwd()
	e.Invocation = newInvocation(call, e.Flags, e.Config, nil)
	got := e.Invocation.Elsewhere().Complete("limpet repo list")
	if !strings.Contains(got, " --state "+dir+"/x/y.db ") || strings.Contains(got, "s3cret") || !strings.HasSuffix(got, " -n edge") {
		t.Errorf("in another directory: %q", got)
	}
	e.Demo("/tmp/d.db")
	if got := e.CommandFor("", "repo list"); got != "limpet repo list --state /tmp/d.db --provisioning-server-url='' --kubeconfig='' -n '*'" {
		t.Errorf("of the demo: %q", got)
	}
	var none *Invocation
	if got := none.Complete(CommandFor("default", "repo list")); got != "limpet repo list" {
		t.Errorf("before the call is known: %q", got)
	}
}
