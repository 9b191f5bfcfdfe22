package apitest

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
			if g.Counts() != (GitCounts{}) {
				t.Errorf("counts after reset = %+v", g.Counts())
			}
		})
	}
}

func TestGitTakesBearer(t *testing.T) {
	g := Git(t, GitOptions{Bearer: "tok"})
	url := g.Serve("r.git", Repo(t, 2, 1).Dir)
	for token, want := range map[string]int{"tok": 200, "nope": 401} {
		req, _ := http.NewRequest(http.MethodGet, url+"/info/refs?service=git-upload-pack", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s answered %d, want %d", token, resp.StatusCode, want)
		}
	}
	if r := g.Requests(); len(r) != 2 || r[0].User != "bearer" || r[0].Service != "info/refs" || r[0].Repo != "r.git" {
		t.Errorf("requests = %v", r)
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

func TestGitFaults(t *testing.T) {
	repo := Repo(t, 10, 5)
	for _, c := range []struct {
		name  string
		fault Fault
		want  string // in the message of git
	}{
		{"status", Fault{Kind: Status, Code: 503, RetryAfter: 7 * time.Second}, "503"},
		{"portal", Fault{Kind: Portal}, "not valid: is this a git repository"},
		{"reset", Fault{Kind: Reset}, "Empty reply"},
		{"truncate", Fault{Kind: Truncate, After: 2000}, ""},
		{"truncate end", Fault{Kind: TruncateEnd, After: 2000}, ""},
		{"flip", Fault{Kind: Flip, After: 3000}, ""},
		{"redirect", Fault{Kind: Redirect, Location: "http://127.0.0.1:1"}, "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := Git(t, GitOptions{})
			url := g.Serve("r.git", repo.Dir)
			g.Break(c.fault)
			if out, err := clone(t, g, url); err == nil || !strings.Contains(out, c.want) {
				t.Fatalf("clone of a broken server: %v\n%s", err, out)
			}
			g.Mend()
			if out, err := clone(t, g, url); err != nil {
				t.Fatalf("clone of the mended server: %v\n%s", err, out)
			}
		})
	}
}

func TestGitStallsUntilTheClientGoes(t *testing.T) {
	g := Git(t, GitOptions{})
	url := g.Serve("r.git", Repo(t, 2, 1).Dir)
	for _, f := range []Fault{{Kind: Stall, Times: 1}, {Kind: StallPack, After: 500, Times: 1}} {
		g.Break(f)
		cmd := exec.Command("git", "clone", "-q", url, filepath.Join(t.TempDir(), "w"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		within(t, func() bool {
			r := g.Requests()
			return len(r) > 0 && (f.Kind == Stall || r[len(r)-1].Service == "git-upload-pack" && r[len(r)-1].Sent() > 0)
		})
		cmd.Process.Kill()
		cmd.Wait()
		g.Reset()
	}
	if out, err := clone(t, g, url); err != nil {
		t.Fatalf("clone after two faults: %v\n%s", err, out)
	}
}

// A fault that strikes a number of times ends by itself, and RetryAfter is sent.
func TestGitFaultTimes(t *testing.T) {
	g := Git(t, GitOptions{})
	url := g.Serve("r.git", Repo(t, 2, 1).Dir) + "/info/refs?service=git-upload-pack"
	g.Break(Fault{Kind: Status, Code: 503, RetryAfter: 7 * time.Second, Times: 2, Service: "info/refs"})
	for i, want := range []int{503, 503, 200} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || want == 503 && resp.Header.Get("Retry-After") != "7" {
			t.Errorf("request %d answered %d, Retry-After %q", i, resp.StatusCode, resp.Header.Get("Retry-After"))
		}
		if got := g.Requests()[i].Code(); got != want {
			t.Errorf("request %d is logged with %d", i, got)
		}
	}
}

func clone(t *testing.T, g *GitServer, url string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", "clone", "-q", url, filepath.Join(t.TempDir(), "w"))
	cmd.Env = append(os.Environ(), "GIT_SSL_CAINFO="+g.CAFile, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// within waits for something that another process does.
func within(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("did not happen in 20 s")
		}
	}
}
