package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/testenv"
)

// The main jobs of the program with its embedded API, in the fast lane. Each has longer relatives in the full lane.

// local is an agent with the embedded API that pulls from a Git host that wants a token.
type localSite struct {
	*home
	repo *testenv.Repository
}

func newLocalSite(t *testing.T, commits, dashboards int) *localSite {
	t.Helper()
	host := testenv.Git(t, testenv.GitOptions{User: "git", Password: gitToken})
	l := &localSite{home: newHome(t), repo: testenv.Repo(t, commits, dashboards)}
	l.file(t, "credentials/default.boards/token", gitToken)
	url := host.Serve("boards.git", l.repo.Dir)
	l.must(t, 0, "repo", "create", "boards", "--url", url, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h")
	return l
}

func (l *localSite) start(t *testing.T) *daemon {
	t.Helper()
	return l.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(l.dir, "credentials"), "--max-sync-workers", "1")
}

// pull waits until a pull has ended well: the agent itself begins the first one.
func (l *localSite) pull(t *testing.T, args ...string) {
	t.Helper()
	until(t, "the pull has ended well", func() bool {
		return l.run(t, append([]string{"repo", "pull", "boards", "--wait"}, args...)...).code == 0
	})
	boardsMatch(t, l.home, "default", "boards", l.repo)
}

// once fails the test unless each job has one record, which is a success, and returns their number.
func (l *localSite) verifyOnce(t *testing.T) int {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range l.history(t) {
		if seen[r.UID] || r.State != "success" {
			t.Errorf("record of %s: state %s, seen before: %t", r.Name, r.State, seen[r.UID])
		}
		seen[r.UID] = true
	}
	return len(seen)
}

// TestPull: a branch becomes dashboards in folders and follows every change. The
// token of the Git host is in no file, log or output.
func TestPull(t *testing.T) {
	t.Parallel()
	l := newLocalSite(t, 20, 25)
	d := l.start(t)
	l.pull(t, "--full")
	boards := l.repo.Dashboards()
	l.repo.Edit(t, boards[3].Path)
	l.repo.Rename(t, boards[4].Path, testenv.Directory+"/moved/renamed.json")
	l.repo.Delete(t, boards[5].Path)
	l.repo.Add(t, testenv.Directory+"/brand/new/board.json")
	l.pull(t)
	l.must(t, 0, "delete", "dashboard", boards[3].UID, "-n", "default")
	l.pull(t, "--full")
	l.verifyOnce(t)
	output := l.evidence(t, d, "boards")
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	l.noSecret(t, d.log.String(), gitToken)
	if holds([]byte(output), gitToken) != "" {
		t.Error("the token is in what the program prints")
	}
}

// TestKilled: an agent that is killed when it has claimed a job, when it has written the first object and in the
// middle of the writing ends each job once, with the dashboards of the branch.
func TestKilled(t *testing.T) {
	t.Parallel()
	l := newLocalSite(t, 2, 100)
	d := l.start(t)
	l.pull(t)
	ended := l.verifyOnce(t)
	for _, point := range []struct {
		step  string
		times int
	}{{"claimed", 1}, {"applied", 1}, {"applied", 50}} {
		var paths []string
		for _, b := range l.repo.Dashboards() {
			paths = append(paths, b.Path)
		}
		l.repo.Edit(t, paths...)
		before := strings.Count(d.log.String(), stepped(point.step))
		l.must(t, 0, "repo", "pull", "boards")
		until(t, "a job is "+point.step, func() bool { return strings.Count(d.log.String(), stepped(point.step)) >= before+point.times })
		d.kill()
		d = l.start(t)
		ended++
		until(t, "the job has ended", func() bool { return len(l.history(t)) == ended })
		boardsMatch(t, l.home, "default", "boards", l.repo)
	}
	l.verifyOnce(t)
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	l.must(t, 0, "store", "check")
}

// stepped is what the log of a daemon has for a step of a job.
func stepped(step string) string { return fmt.Sprintf(`"step":%q`, step) }

// serveAPI starts 'limpet api' and returns its URL.
func serveAPI(t *testing.T, h *home) string {
	t.Helper()
	out := &log{}
	cmd := h.command(context.WithoutCancel(t.Context()), t, "api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	url := ""
	until(t, "the API is served", func() bool {
		_, rest, ok := strings.Cut(out.String(), "https://127.0.0.1:")
		if ok {
			url = "https://127.0.0.1:" + rest[:strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })]
		}
		return ok
	})
	return url
}

// TestTwoAgents: two agents share the jobs of one API, and one of them is stopped. Every job ends once.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	const repositories, rounds = 6, 3
	url := serveAPI(t, newHome(t))
	host, repo := testenv.Git(t, testenv.GitOptions{}), testenv.Repo(t, 1, 2)
	var agents []*home
	var daemons []*daemon
	for range 2 {
		h := newHome(t, "--provisioning-server-url", url, "--token", testenv.SignToken)
		agents, daemons = append(agents, h), append(daemons, h.daemon(t, "--controllers", "off"))
	}
	people := agents[0]
	for i := range repositories {
		people.must(t, 0, "repo", "create", fmt.Sprint("r", i), "--url", host.Serve(fmt.Sprintf("r%d.git", i), repo.Dir), "--branch",
			testenv.Branch)
	}
	archived := func() map[string]int {
		var list struct {
			Items []struct {
				Metadata struct{ Labels map[string]string }
			}
		}
		if err := json.Unmarshal([]byte(people.must(t, 0, "get", "historicjobs", "-o", "json").out), &list); err != nil {
			t.Fatal(err)
		}
		times := map[string]int{}
		for _, o := range list.Items {
			times[o.Metadata.Labels["provisioning.grafana.app/original-uid"]]++
		}
		return times
	}
	for round := range rounds {
		for i := range repositories {
			people.must(t, 0, "repo", "pull", fmt.Sprint("r", i), "--full")
		}
		if round == rounds-1 {
			if code := daemons[1].stop(t); code != 0 {
				t.Errorf("exit %d", code)
			}
		}
		until(t, "all jobs of the round have ended", func() bool { return len(archived()) == (round+1)*repositories })
	}
	for uid, n := range archived() {
		if n != 1 {
			t.Errorf("job %s has %d HistoricJobs", uid, n)
		}
	}
	if code := daemons[0].stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
