package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEdit: the difference that the editor makes is what is written, and nothing else.
func TestEdit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string // of the editor, on $1
		code   int
		branch string // afterwards
		says   string
	}{
		"change":        {`sed -i 's/branch: main/branch: next/' "$1"`, 0, "next", "+    branch: next"},
		"no change":     {`:`, 0, "main", "unchanged"},
		"same meaning":  {`echo '# a comment' >> "$1"`, 0, "main", "unchanged"},
		"emptied":       {`: > "$1"`, 0, "main", "unchanged"},
		"no YAML":       {`echo '{' >> "$1"`, 1, "main", "invalid YAML"},
		"no editor run": {`exit 3`, 1, "main", "editor: exit status 3"},
		"invalid":       {`sed -i 's/target: folder/target: moon/' "$1"`, 1, "main", "spec.sync.target"},
		"name":          {`sed -i 's/name: dash$/name: other/' "$1"`, 1, "main", "metadata.name"},
		"status":        {`echo 'status: {}' >> "$1"`, 1, "main", "status"},
		"marker":        {`sed -i 's/branch: main/branch: x[redacted]/' "$1"`, 1, "main", "[redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.Must(t, 0, "repo", "create", "dash", "--url", "https://git.example.com/x.git", "--branch", "main")
			editor := filepath.Join(s.Dir, "editor")
			if err := os.WriteFile(editor, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			s.Env["EDITOR"] = editor
			code, out, errs := s.Call("edit", "repo", "dash", "--yes")
			if code != tt.code || !strings.Contains(out+errs, tt.says) {
				t.Errorf("exit %d, want %d: %s%s", code, tt.code, out, errs)
			}
			got, _ := s.Must(t, 0, "get", "repository", "dash", "-o", "yaml")
			if !strings.Contains(got, "branch: "+tt.branch+"\n") {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}
