package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/sync/testenv/suite"

	"limpet/state"
	"limpet/sync/testenv"
)

const gitToken = "canary-5f0e-git-token"

// site is an agent at work against real servers: the API behind TLS and a token
// exchange, the Git host behind TLS and basic authentication.
type site struct {
	*home
	api    *testenv.Server
	host   *testenv.GitServer
	repo   *testenv.Repository
	agent  *daemon
	before testenv.Mark
}

func newSite(t *testing.T, commits, dashboards int, flags ...string) *site {
	t.Helper()
	s := &site{
		api:  testenv.Start(t, testenv.Options{}),
		host: testenv.Git(t, testenv.GitOptions{TLS: true, User: "git", Password: gitToken}),
		repo: testenv.Repo(t, commits, dashboards),
	}
	url := s.host.Serve("ops/dashboards.git", s.repo.Dir)
	s.home = newHome(t)
	ca, err := os.ReadFile(s.host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	s.file(t, "credentials/default.boards/token", gitToken)
	s.file(t, "credentials/default.boards/ca.crt", string(ca))
	token := s.file(t, "token", testenv.SignToken+"\n")
	s.args = []string{"--provisioning-server-url", s.api.URL, "--tls-ca-file", s.api.CAFile, "--token-exchange-url", s.api.SignURL,
		"--token-file", token}
	s.agent = s.daemon(t, append([]string{"--credentials-dir", filepath.Join(s.dir, "credentials"), "--history-expiration", "24h"},
		flags...)...)
	s.must(t, 0, "repo", "create", "boards", "--url", url, "--branch", testenv.Branch, "--path", testenv.Directory, "--title", "Boards")
	return s
}

// writes returns what was written to the API since the last call, as "VERB
// kind name", sorted; requests about the job and its repository are left out.
func (s *site) writes(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, r := range s.api.Writes(t, s.before) {
		if strings.Contains(r.Path, "/provisioning.grafana.app/") || strings.HasPrefix(r.Path, "/sign") {
			continue
		}
		if r.Code >= 300 {
			t.Errorf("%s %s was answered with %d", r.Method, r.Path, r.Code)
		}
		kind, name := path.Base(path.Dir(r.Path)), path.Base(r.Path)
		if r.Method == "POST" {
			var body struct {
				Metadata struct{ Name string }
			}
			if err := json.Unmarshal(r.Body, &body); err != nil {
				t.Fatalf("%s %s: %v", r.Method, r.Path, err)
			}
			kind, name = name, body.Metadata.Name
		}
		out = append(out, fmt.Sprintf("%s %s %s", r.Method, kind, name))
	}
	slices.Sort(out)
	s.before = s.api.Mark(t)
	return out
}

func (s *site) want(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := s.writes(t); !slices.Equal(got, want) {
		t.Errorf("writes to the API:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// boards returns the dashboards that the API holds: path in the repository to object.
func (s *site) boards(t *testing.T) map[string]object {
	t.Helper()
	out := map[string]object{}
	for _, o := range s.objects(t, "dashboards") {
		out[o.Metadata.Annotations["grafana.app/sourcePath"]] = o
	}
	return out
}

func (s *site) objects(t *testing.T, kind string) []object { return s.home.objects(t, "default", kind) }

// matches fails unless the API holds exactly the dashboards of the branch.
func (s *site) matches(t *testing.T) {
	t.Helper()
	boardsMatch(t, s.home, "default", "boards", s.repo)
}

// TestPullJourney is the main job on real input: 300 commits and 100 dashboards in nested folders,
// then all that can happen to them, with the exact writes of every step.
func TestPullJourney(t *testing.T) {
	suite.Full(t)
	s := newSite(t, 300, 100)
	s.before = s.api.Mark(t)

	s.must(t, 0, "repo", "pull", "boards", "--full", "--wait")
	var want []string
	for _, d := range s.repo.Dashboards() {
		want = append(want, "POST dashboards "+d.UID)
	}
	folders := 1 // the root folder of the repository
	got := s.writes(t)
	for _, w := range got {
		if strings.HasPrefix(w, "POST folders ") {
			folders--
			want = append(want, w)
		}
	}
	if n := len(s.repo.Folders()); -folders != n {
		t.Errorf("%d folders written, want %d and the root", -folders+1, n)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("first pull wrote\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s.matches(t)

	t.Run("nothing new costs one listing of references and no write", func(t *testing.T) {
		for _, args := range [][]string{{}, {"--full"}} {
			s.host.Reset()
			s.must(t, 0, append([]string{"repo", "pull", "boards", "--wait"}, args...)...)
			if c := s.host.Reset(); c.InfoRefs != 1 || c.UploadPack != 0 {
				t.Errorf("pull %v: %d listings, %d fetches; want 1 and 0", args, c.InfoRefs, c.UploadPack)
			}
			s.want(t)
		}
	})
	boards := s.repo.Dashboards()

	t.Run("a change writes what changed and fetches little", func(t *testing.T) {
		s.repo.Edit(t, boards[3].Path, boards[40].Path)
		s.host.Reset()
		s.must(t, 0, "repo", "pull", "boards", "--wait")
		if c := s.host.Reset(); c.UploadPack > 2 || c.Sent > 100_000 {
			t.Errorf("the host was asked %+v", c)
		}
		s.want(t, "PUT dashboards "+boards[3].UID, "PUT dashboards "+boards[40].UID)
		s.matches(t)
	})
	t.Run("a rename keeps the object", func(t *testing.T) {
		from := boards[10]
		s.repo.Rename(t, from.Path, path.Join(path.Dir(from.Path), "renamed.json"))
		s.must(t, 0, "repo", "pull", "boards", "--wait")
		s.want(t, "PUT dashboards "+from.UID)
		s.matches(t)
	})
	t.Run("an added dashboard in a new folder", func(t *testing.T) {
		d := s.repo.Add(t, testenv.Directory+"/brand/new/board.json")
		s.must(t, 0, "repo", "pull", "boards", "--wait")
		got := s.writes(t)
		if len(got) != 3 || got[0] != "POST dashboards "+d.UID || !strings.HasPrefix(got[1], "POST folders brand-") ||
			!strings.HasPrefix(got[2], "POST folders new-") {
			t.Errorf("writes: %q", got)
		}
		s.matches(t)
		s.repo.Delete(t, d.Path)
		s.must(t, 0, "repo", "pull", "boards", "--wait")
		gone := s.writes(t)
		for i := range got {
			got[i] = strings.Replace(got[i], "POST", "DELETE", 1)
		}
		if !slices.Equal(gone, got) {
			t.Errorf("the way back wrote %q, want %q", gone, got)
		}
		s.matches(t)
	})
	t.Run("a deleted dashboard", func(t *testing.T) {
		s.repo.Delete(t, boards[20].Path)
		s.must(t, 0, "repo", "pull", "boards", "--wait")
		got := s.writes(t)
		if len(got) == 0 || got[0] != "DELETE dashboards "+boards[20].UID {
			t.Errorf("writes: %q", got)
		}
		s.matches(t)
	})
	t.Run("a force-push to rewritten history", func(t *testing.T) {
		keep := boards[50]
		s.repo.ForcePush(t, 3)
		s.repo.Edit(t, keep.Path)
		s.must(t, 0, "repo", "pull", "boards", "--wait")
		if got := s.writes(t); !slices.Contains(got, "PUT dashboards "+keep.UID) {
			t.Errorf("writes: %q", got)
		}
		s.matches(t)
	})
	t.Run("what was changed in the API by hand comes back with a full pull", func(t *testing.T) {
		s.must(t, 0, "delete", "dashboard", boards[60].UID, "-n", "default")
		s.before = s.api.Mark(t)
		s.must(t, 0, "repo", "pull", "boards", "--full", "--wait")
		s.want(t, "POST dashboards "+boards[60].UID)
		s.matches(t)
	})
	t.Run("the repository tells how it stands", func(t *testing.T) {
		var repo struct {
			Status struct {
				Sync struct {
					State, LastRef, Job string
					Finished            int64
				}
				Stats []struct {
					Resource string
					Count    int
				}
			}
		}
		r := s.must(t, 0, "repo", "show", "boards", "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &repo); err != nil {
			t.Fatal(err)
		}
		if st := repo.Status.Sync; st.State != "success" || st.LastRef != s.repo.Head(t) || st.Finished == 0 {
			t.Errorf("status.sync: %+v, want head %s", st, s.repo.Head(t))
		}
		counts := map[string]int{}
		for _, st := range repo.Status.Stats {
			counts[st.Resource] = st.Count
		}
		if counts["dashboards"] != len(s.repo.Dashboards()) {
			t.Errorf("status.stats: %v, want %d dashboards", counts, len(s.repo.Dashboards()))
		}
	})
	t.Run("history has one record and one HistoricJob for each job", func(t *testing.T) {
		records := s.history(t)
		seen := map[string]bool{}
		for _, r := range records {
			if seen[r.UID] || r.State != "success" {
				t.Errorf("record %s of %s: state %s, seen before: %v", r.UID, r.Name, r.State, seen[r.UID])
			}
			seen[r.UID] = true
		}
		historic := s.objects(t, "historicjobs")
		if len(historic) != len(records) {
			t.Errorf("%d HistoricJobs for %d records", len(historic), len(records))
		}
		if jobs := s.objects(t, "jobs"); len(jobs) != 0 {
			t.Errorf("%d jobs are left in the queue", len(jobs))
		}
	})
	if code := s.agent.stop(t); code != 0 {
		t.Errorf("exit code %d on SIGTERM", code)
	}
	s.noSecret(t, s.agent.log.String(), gitToken)
}

// TestBadFilesDoNotStopGoodOnes commits what goes wrong in real repositories beside what is right.
func TestBadFilesDoNotStopGoodOnes(t *testing.T) {
	suite.Full(t)
	s := newSite(t, 5, 10)
	s.must(t, 0, "repo", "pull", "boards", "--full", "--wait")
	board := s.repo.Dashboards()[0]
	dir := testenv.Directory + "/bad/"
	s.repo.Commit(t, "Bad ones",
		testenv.Change{Path: dir + "cut.json", Data: []byte(`{"title": "cut`)},
		testenv.Change{Path: dir + "tabs.yaml", Data: []byte("apiVersion: v1\n\tkind: X\n")},
		testenv.Change{Path: dir + "blank.json", Data: []byte("\n")},
		testenv.Change{Path: dir + "large.json", Data: []byte(`{"title":"large","uid":"large","panels":[],"schemaVersion":41,"tags":["` +
			strings.Repeat("x", 2<<20) + `"]}`)},
		testenv.Change{Path: dir + "twin.json", Data: board.JSON()},
	)
	good := s.repo.Add(t, testenv.Directory+"/good/one.json")
	r := s.must(t, 4, "repo", "pull", "boards", "--wait")
	for _, file := range []string{"cut.json", "tabs.yaml", "blank.json", "large.json", "twin.json"} {
		if !strings.Contains(r.out, file) {
			t.Errorf("no word about %s in:\n%s", file, r.out)
		}
	}
	if _, ok := s.boards(t)["good/one.json"]; !ok {
		t.Errorf("%s was not written", good.Path)
	}
	if got := s.history(t)[0]; got.State != "warning" {
		t.Errorf("the job ended in %s, want warning", got.State)
	}
	t.Run("then all files go", func(t *testing.T) {
		// A branch that loses nearly everything is more often an accident.
		var all []string
		for _, d := range s.repo.Dashboards() {
			all = append(all, d.Path)
		}
		s.repo.Delete(t, all...)
		s.must(t, 7, "repo", "pull", "boards", "--full", "--wait")
		s.must(t, 4, "repo", "pull", "boards", "--full", "--wait", "--allow-mass-delete")
		// The twin is the only file left that names its dashboard: it is its now.
		left := s.boards(t)
		if _, ok := left["bad/twin.json"]; !ok || len(left) != 1 {
			t.Errorf("%d dashboards are left, the twin among them: %v", len(left), ok)
		}
	})
}

func brief(records []state.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, r.Name+" "+r.State+" "+r.Message)
	}
	return out
}

// TestLargeFiles: a dashboard and a picture that Git LFS keeps arrive with their bytes in
// a directory, from a host that wants credentials, and the agent holds none of them.
func TestLargeFiles(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const token = "canary-51ef-large"
	host := testenv.Git(t, testenv.GitOptions{TLS: true, User: "ann", Password: token})
	repo := testenv.EmptyRepo(t)
	picture := strings.Repeat("\x89PNG\r\n\x1a\n\x00not text\xff", 5<<20) // 90 MiB
	board := `{"uid":"large","title":"Large","panels":[]}` + "\n"
	repo.Commit(t, "large", testenv.Change{Path: ".gitattributes", Data: []byte("l*.json filter=lfs\nimg/** filter=lfs\n")},
		testenv.Change{Path: "large.json", Data: []byte(host.KeepLFS(board))},
		testenv.Change{Path: "img/picture.png", Data: []byte(host.KeepLFS(picture))}, testenv.Change{Path: "plain.json", Data: []byte("{}\n")})
	ca, err := os.ReadFile(host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	for name, text := range map[string]string{"username": "ann", "password": token, "ca.crt": string(ca)} {
		h.file(t, "credentials/default.site/"+name, text)
	}
	d := h.daemon(t, "--credentials-dir", filepath.Join(h.dir, "credentials"), "--sink-prefix", h.dir)
	sink := filepath.Join(h.dir, "sinks", "site")
	h.must(t, 0, "repo", "create", "site", "--url", host.Serve("site.git", repo.Dir), "--branch", testenv.Branch, "--interval", "24h",
		"--sink-dir", sink, "--no-sink-strict")
	pull := func() result {
		t.Helper()
		var r result
		until(t, "the pull has ended", func() bool { // beside the one that the agent itself begins
			r = h.run(t, "repo", "pull", "site", "--full", "--wait")
			return !strings.Contains(r.err, "already exists")
		})
		return r
	}
	if r := pull(); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	for name, want := range map[string]string{"large.json": board, "plain.json": "{}\n", "img/picture.png": picture} {
		data, err := os.ReadFile(filepath.Join(sink, name))
		if got, sum := sha256.Sum256(data), sha256.Sum256([]byte(want)); err != nil || got != sum {
			t.Errorf("%s: %d bytes with %s, want %d: %v", name, len(data), hex.EncodeToString(got[:4]), len(want), err)
		}
	}
	w := readUsage(t, d.cmd.Process.Pid)
	t.Logf("90 MiB from Git LFS: %s", w)
	if w.peak > 100<<10 {
		t.Errorf("the agent held %d MiB", w.peak>>10)
	}
	lost := host.KeepLFS(board + " ")
	host.LoseLFS()
	repo.Commit(t, "lost", testenv.Change{Path: "large.json", Data: []byte(lost)})
	r := pull()
	if !strings.Contains(r.out+r.err, "1 warning") {
		t.Errorf("exit %d: %s", r.code, r.out+r.err)
	}
	if data, err := os.ReadFile(filepath.Join(sink, "large.json")); err != nil || string(data) != board {
		t.Errorf("the directory has changed: %q %v", data, err)
	}
	told := r.out + r.err + h.must(t, 0, "get", "repositories", "-o", "yaml").out + h.must(t, 0, "history", "list", "-o", "json").out
	d.stop(t)
	h.noSecret(t, d.log.String()+told, token)
}
