package cli

import (
	"os"
	"path/filepath"
	"regexp"
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
		"editor fails":  {`sed -i 's/branch: main/branch: next/' "$1"; exit 3`, 1, "main", "editor: exit status 3"},
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
			kept := regexp.MustCompile(`/\S+/limpet-edit-\d+/object\.yaml`).FindString(errs)
			if data, err := os.ReadFile(kept); (kept != "") != (tt.code != 0 && name != "no editor run") || kept != "" &&
				(err != nil || !strings.Contains(string(data), "name: ")) {
				t.Errorf("keeps the text in %q: %v: %s", kept, err, errs)
			}
			os.RemoveAll(filepath.Dir(kept))
			got, _ := s.Must(t, 0, "get", "repository", "dash", "-o", "yaml")
			if !strings.Contains(got, "branch: "+tt.branch+"\n") {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

// TestEditRefuses: a Secret would lie in the file, and a change of a declared object would be undone.
func TestEditRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file, editor := filepath.Join(s.Dir, "objects.yaml"), filepath.Join(s.Dir, "editor")
	for name, data := range map[string]string{editor: "#!/bin/sh\nsed -i 's/branch: main/branch: next/' \"$1\"\n", file: `apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {token: the-secret-value}
---
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: dash, annotations: {limpet/manifest: site.yaml}}
spec: {title: Dash, type: git, git: {url: "https://host/a", branch: main}, sync: {enabled: true, target: folder}}
`} {
		if err := os.WriteFile(name, []byte(data), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.Env["EDITOR"] = editor
	s.Must(t, 0, "apply", "-f", file)
	s.Must(t, 2, "edit", "secret", "key", "--yes")
	s.Must(t, 1, "edit", "repo", "dash", "--yes")
	s.Must(t, 0, "edit", "repo", "dash", "--yes", "--force")
	if got, _ := s.Must(t, 0, "get", "repo", "dash", "-o", "yaml"); !strings.Contains(got, "branch: next\n") {
		t.Errorf("forced: %s", got)
	}
}
