package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestPowerShell compares the script of a small program with the one that was looked at
// by hand, since PowerShell itself is not asked here.
func TestPowerShell(t *testing.T) {
	t.Parallel()
	var small struct {
		State  string `help:"File." placeholder:"FILE"`
		Output string `short:"o" enum:"table,json" default:"table"`
		Quiet  bool   `short:"q"`
		Job    struct {
			List struct {
				Repository string `short:"r"`
				Limit      uint
			} `cmd:""`
			Watch struct {
				Job string `arg:""`
			} `cmd:""`
		} `cmd:""`
		Completion struct {
			Shell string `arg:"" enum:"bash,powershell"`
		} `cmd:""`
	}
	parser, err := kong.New(&small, kong.Name("limpet"), kong.NoDefaultHelp())
	if err != nil {
		t.Fatal(err)
	}
	got := powershellScript(completions(parser.Model.Node))
	path := filepath.Join("..", "..", "testdata", "golden", "completion.ps1")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("it is another one than %s:\n%s", path, got)
	}
}

// TestPowerShellTables: what is put into the tables stands between quotation marks that
// nothing in it ends, and each key is there once, as PowerShell compares them.
func TestPowerShellTables(t *testing.T) {
	t.Parallel()
	out, _ := newSite(t).must(t, 0, "completion", "powershell")
	head, walk, ok := strings.Cut(out, powershellWalk)
	if !ok || walk != "" {
		t.Fatal("the tables stand before the rest")
	}
	row := regexp.MustCompile(`^        '([^']*)' = ('[^']*')(, '[^']*', '[^']*')?$`)
	keys := map[string]string{}
	for line := range strings.Lines(head) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "        ") {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no row: %s", line)
		}
		key := strings.ToLower(m[1])
		if _, twice := keys[key]; twice {
			t.Errorf("twice: %s", line)
		}
		keys[key] = m[2]
	}
	for key, value := range map[string]string{"": "", "job create": "", "job create --action": "", "job create -w": "none", " --output": "'=table wide json jsonl yaml name'", " -o": "'=table wide json jsonl yaml name'", " --token-file": "'file'", "job list -r": "'repository'", " -n": "'namespace'"} {
		got, there := keys[key]
		if there == (value == "none") || value != "" && value != "none" && got != value {
			t.Errorf("%q: %s, want %s", key, got, value)
		}
	}
}
