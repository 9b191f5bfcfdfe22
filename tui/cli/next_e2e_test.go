package cli_test

import (
	"encoding/json"
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
