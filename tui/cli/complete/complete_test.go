package complete

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestCandidates: what may stand at the cursor comes from the model alone, names from a look-up.
func TestCandidates(t *testing.T) {
	t.Parallel()
	var small struct {
		State   string `help:"The file. It is one." placeholder:"FILE"`
		Dir     string `placeholder:"DIR"`
		Output  string `short:"o" enum:"table,json,jsonl" default:"table"`
		Quiet   bool   `short:"q" negatable:"" help:"Say less; or nothing."`
		Drivers int    `group:"Agent"`
		Status  struct {
		} `cmd:""`
		Hidden struct {
		} `cmd:"" hidden:""`
		Job struct {
			List struct {
				Repository string `short:"r"`
				Limit      uint
			} `cmd:"" help:"All jobs."`
			Watch struct {
				Job string `arg:""`
			} `cmd:""`
		} `cmd:""`
		Get struct {
			Kind string `arg:""`
			Name string `arg:"" optional:""`
		} `cmd:""`
		Source struct {
			Show struct {
				Name string `arg:""`
				Kind string
			} `cmd:""`
		} `cmd:""`
		Demo struct {
		} `cmd:""`
	}
	parser, err := kong.New(&small, kong.Name("limpet"), kong.NoDefaultHelp())
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"":                               "demo get job source status",
		"j":                              "job",
		"job ":                           "list watch",
		"-o j":                           "json jsonl",
		"--output=j":                     "--output=json --output=jsonl",
		"--output=j --output js":         "json jsonl",
		"--no":                           "--no-quiet",
		"-":                              "--dir --drivers --no-quiet --output --quiet --state -o -q",
		"status --d":                     "--dir",
		"demo --d":                       "--dir --drivers",
		"job list --rep":                 "--repository",
		"job list -r a":                  "alpha",
		"job list --repository=a":        "--repository=alpha",
		"job list --limit ":              "",
		"job watch ":                     "alpha beta",
		"job watch x ":                   "",
		"--quiet job watch ":             "alpha beta",
		"--drivers 3 job watch ":         "alpha beta",
		"--state ":                       ":file",
		"--state=x":                      ":file",
		"--dir x":                        ":dir",
		"get re":                         "repositories",
		"get repositories b":             "beta",
		"--unheard-of=3 job watch b":     "beta",
		"source show --kind helm":        "helmchart helmrepository",
		"source show --kind bucket b":    "beta bucket",
		"source show --kind=bucket b":    "beta bucket",
		"source show ":                   "alpha beta gitrepository",
		"status ":                        "",
		"unheard-of ":                    "demo get job source status",
		"--unheard-of=":                  "",
		"get nonsense --state x --out":   "--output",
		"job list --quiet -r alpha --no": "--no-quiet",
	} {
		words := strings.Split(line, " ")
		last := len(words) - 1
		c := read(parser.Model.Node, words[:last])
		c.names = func(string) []string { return []string{"alpha", "beta"} }
		if strings.HasPrefix(line, "source ") {
			c.names = func(kind string) []string { return []string{"alpha", "beta", kind} }
		}
		var got []string
		for _, found := range c.candidates(words[last]) {
			word, _, _ := strings.Cut(found, "\t")
			got = append(got, word)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if got := read(parser.Model.Node, nil).candidates("--qu"); len(got) != 1 || got[0] != "--quiet\tSay less" {
		t.Errorf("%q", got)
	}
}

// TestScripts are short and have no control characters: a shell reads them at each start.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		data, err := scripts.ReadFile("scripts/" + shell)
		if err != nil {
			t.Fatal(err)
		}
		script := string(data)
		if n := strings.Count(script, "\n"); n > 30 || !strings.HasPrefix(script, "#") || strings.ContainsRune(script, '\x1b') ||
			!strings.Contains(script, " "+Word+" ") {
			t.Errorf("%s, %d lines:\n%s", shell, n, script)
		}
	}
}
