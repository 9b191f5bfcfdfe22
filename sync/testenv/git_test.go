package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestGitClonesOverHTTP(t *testing.T) {
	repo := Repo(t, 10, 5)
	for _, c := range []struct {
		name string
		o    GitOptions
		auth string // of the URL
		ok   bool
	}{
		{"open", GitOptions{}, "", true},
		{"tls", GitOptions{TLS: true}, "", true},
		{"basic", GitOptions{User: "grafana", Password: "secret"}, "grafana:secret@", true},
		{"basic, wrong", GitOptions{User: "grafana", Password: "secret"}, "grafana:wrong@", false},
		{"basic, none", GitOptions{User: "grafana", Password: "secret"}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := Git(t, c.o)
			url := strings.Replace(g.Serve("ops/boards.git", repo.Dir), "://", "://"+c.auth, 1)
			out, err := clone(t, g, url)
			if (err == nil) != c.ok {
				t.Fatalf("clone: %v\n%s", err, out)
			}
			counts := g.Reset()
			if c.ok && (counts.InfoRefs == 0 || counts.UploadPack == 0 || counts.Sent < 1000) {
				t.Errorf("counts = %+v", counts)
			}
			if !c.ok && counts.UploadPack != 0 {
				t.Errorf("counts = %+v", counts)
			}
			if again := g.Reset(); again != (GitCounts{}) {
				t.Errorf("counts after reset = %+v", again)
			}
		})
	}
}

func TestGitPushes(t *testing.T) {
	repo := Repo(t, 2, 1)
	g := Git(t, GitOptions{User: "u", Password: "p"})
	url := strings.Replace(g.Serve("r.git", repo.Dir), "://", "://u:p@", 1)
	work := filepath.Join(t.TempDir(), "w")
	script := `git clone -q "$1" "$2" && cd "$2" && head -c 3000000 /dev/urandom > big && git add big &&
		git -c user.name=u -c user.email=u@x commit -qm big && git push -q origin HEAD`
	if out, err := exec.Command("sh", "-ec", script, "sh", url, work).CombinedOutput(); err != nil {
		t.Fatalf("push: %v\n%s", err, out)
	}
	if n := repo.Git(t, "rev-list", "--count", Branch); n != "3" {
		t.Errorf("%s commits after the push", n)
	}
}

func clone(t *testing.T, g *GitServer, url string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", "clone", "-q", url, filepath.Join(t.TempDir(), "w"))
	cmd.Env = append(os.Environ(), "GIT_SSL_CAINFO="+g.CAFile, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
