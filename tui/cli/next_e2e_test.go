package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// try is the command line that an error document names.
func try(t *testing.T, r result) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	var doc struct{ Error struct{ Try string } }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &doc); err != nil {
		t.Fatalf("%v: %q", err, r.err)
	}
	line, _, _ := strings.Cut(doc.Error.Try, "    #")
	words := strings.Fields(strings.ReplaceAll(line, "'", ""))
	if len(words) < 2 || words[0] != "limpet" {
		t.Fatalf("no command line: %q", doc.Error.Try)
	}
	return words[1:]
}

// TestWhatIsNextCanBeRun: the command line that a failure names does as it is printed
// what it says, also for an object of another namespace, for one whose name two of them
// have, and for a state file that a flag names.
func TestWhatIsNextCanBeRun(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	other := filepath.Join(h.dir, "it's another.db")
	h.env = append(h.env, "LIMPET_STATE=")
	for _, namespace := range []string{"default", "edge"} {
		h.must(t, 0, "--state", other, "-n", namespace, "repo", "create", "boards", "--url", "https://127.0.0.1:1/x.git", "--disabled")
	}
	file := h.file(t, "flux.yaml", sourceYAML("near", "https://127.0.0.1:1/x.git", ""))
	for _, c := range []struct {
		code   int
		call   string
		then   string // what the next call is
		ends   int    // and how it ends
		prints string
	}{
		{2, "repo show boards", "--state STATE repo show boards -o json --namespace default", 0, `"namespace": "default"`},
		{1, "-n edge repo show no", "repo list -n edge --state STATE", 0, "boards"},
		{1, "-n edge repo create boards --url https://h/x.git", "repo show boards -n edge --state STATE", 0, "edge/boards"},
		{1, "-n default repo create boards --url https://h/x.git", "repo show boards -n default --state STATE", 0, "default/boards"},
		{1, "-n edge repo test boards", "repo test boards -n edge --state STATE", 1, "remote        failed"},
		{1, "source test -f " + file, "source test -f " + file + " --state STATE", 1, "remote        failed"},
		{1, "-n edge repo pull boards --wait", "--daemon --state STATE", -1, ""},
	} {
		args := append([]string{"--state", other}, strings.Fields(c.call)...)
		next := strings.Join(try(t, h.must(t, c.code, append(args, "-o", "json")...)), " ")
		if want := strings.Replace(c.then, "STATE", strings.Replace(other, "'", `\`, 1), 1); next != want {
			t.Errorf("%s: next is %q, want %q", c.call, next, want)
		}
		if c.ends < 0 {
			continue // it serves
		}
		var words []string
		for _, word := range strings.Fields(c.then) {
			words = append(words, strings.Replace(word, "STATE", other, 1))
		}
		if r := h.must(t, c.ends, words...); !strings.Contains(r.out, c.prints) {
			t.Errorf("%s: %s", next, r.out)
		}
	}
}

// shell runs a command line as a person does who copies it.
func (h *home) shell(t *testing.T, line string) result {
	t.Helper()
	var out, errs bytes.Buffer
	sh := tied(exec.CommandContext(t.Context(), "sh", "-c", line))
	sh.Env, sh.Dir, sh.Stdout, sh.Stderr = append(h.env, "PATH="+filepath.Dir(limpetBinary(t))+":"+os.Getenv("PATH")), h.dir, &out, &errs
	if err := sh.Run(); sh.ProcessState == nil {
		t.Fatal(err)
	}
	return result{sh.ProcessState.ExitCode(), out.String(), errs.String()}
}

// TestWhatIsNextIsForAShell: a path with a blank in it is one word, and what stands
// behind the pipe gets no flags.
func TestWhatIsNextIsForAShell(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.daemon(t)
	h.must(t, 0, "apply", "-f", h.file(t, "flux.yaml", sourceYAML("near", "https://127.0.0.1:1/x.git", "")))
	packed(t, h, "near")
	h.file(t, "a dir/bad.yaml", "a: [")
	dir := filepath.Join(h.dir, "a dir")
	for _, c := range []struct {
		call   []string
		code   int
		says   string
		then   string // what is there then
		within string
	}{
		{[]string{"source", "get", "near", "--file", dir}, 0, "verified", "FILE", "a dir"},
		{[]string{"store", "backup", dir}, 0, "written to", "FILE", "a dir"},
		{[]string{"history", "export", "--file", dir}, 0, "records written to", "FILE", "a dir"},
		{[]string{"store", "backup", filepath.Join(dir, "b c", "x")}, 0, "", "b c", "a dir"},
		{[]string{"apply", "-f", filepath.Join(dir, "bad.yaml")}, 2, "a dir/bad.yaml, document 1:", "", ""},
		{[]string{"status", "--config", filepath.Join(dir, "bad.yaml")}, 2, "a dir/bad.yaml: error converting YAML", "", ""},
	} {
		_ = os.Remove(filepath.Join(h.dir, c.within, c.then))
		_, line, _ := strings.Cut(h.must(t, 2, c.call...).err, "  try: ")
		if r := h.shell(t, line); r.code != c.code || !strings.Contains(r.out+r.err, c.says) {
			t.Errorf("%v: %s: exit %d %s%s", c.call, line, r.code, r.out, r.err)
		}
		if _, err := os.Stat(filepath.Join(h.dir, c.within, c.then)); err != nil {
			t.Errorf("%v: %v", c.call, err)
		}
	}
	tt := h.terminal(t, "--state", h.state(), "source", "get", "near", "--file", "-")
	tt.shows(t, "limpet source get near --file - --state "+h.state()+" | tar tz")
	if code := exitOf(tt.end(t)); code != 2 {
		t.Errorf("exit %d", code)
	}
	tt = h.terminal(t, "--provisioning-server-url", "https://127.0.0.1:1")
	tt.shows(t, "limpet --provisioning-server-url ''    # shows that daemon")
	if code := exitOf(tt.end(t)); code != 2 {
		t.Errorf("exit %d", code)
	}
	if r := h.shell(t, "limpet status --provisioning-server-url ''"); r.code != 0 || !strings.Contains(r.out, "embedded ok") {
		t.Errorf("exit %d %s%s", r.code, r.out, r.err)
	}
}
