package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// killPoints are the places where a job of every kind can be stopped.
var killPoints = []string{failpoint.Seen, failpoint.Intent, failpoint.Claimed, failpoint.Confirmed, failpoint.Fetched, failpoint.Planned,
	failpoint.Applying, failpoint.Marked, failpoint.Recorded, failpoint.Posted, failpoint.Deleted, failpoint.Ended}

// few are Repositories of which each job writes a handful of objects.
func few() map[string]int { return map[string]int{"a": small, "b": small, "c": small, "d": small} }

// TestKilledAtEveryPoint: the process kills itself at a point of a job and is started again,
// over and over. The end state is that of an agent that was never killed.
func TestKilledAtEveryPoint(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	lives := [][]string{killPoints} // one agent for all points
	if suite.IsFull() {
		lives = nil
		for _, p := range killPoints {
			lives = append(lives, []string{p}) // one for each
		}
	}
	each := suite.Count(1, 50)
	t.Run("at", func(t *testing.T) {
		for i, points := range lives {
			name := "every-point"
			if len(points) == 1 {
				name = points[0]
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				sizes := few()
				switch {
				case name == failpoint.Marked:
					sizes = map[string]int{"large": large}
				case len(points) > 1:
					sizes["large"] = large
				}
				m := newCrashAgent(t, w, "kill-"+name, first+uint64(i), sizes)
				kills := 0
				for range each {
					for _, p := range points {
						m.killAt(p)
						kills++
					}
				}
				m.finishJobs()
				m.verify()
				writes, again := m.redundantWrites()
				if again > 0 {
					t.Errorf("%d of %d writes wrote what was there already", again, writes)
				}
			})
		}
	})
}

// killAt runs the agent until a job reaches a point.
func (m *crashAgent) killAt(point string) {
	m.t.Helper()
	passage, names := 1+m.rng.IntN(3), []string{"a", "b", "c", "d"}
	switch point {
	case failpoint.Marked:
		passage, names = 1, []string{"large"}
	case failpoint.Applying:
		passage = 1 + m.rng.IntN(3*small)
	}
	m.ensureJobs(names...)
	l := m.start(fmt.Sprintf("%s=kill@%d", point, passage))
	hungry := time.NewTicker(300 * time.Millisecond)
	defer hungry.Stop()
	for deadline := time.After(callTimeout); ; {
		select {
		case <-l.done:
			if !m.awaitEnd(l) {
				m.t.Fatalf("not killed at %s", point)
			}
			return
		case <-hungry.C: // what earlier lives have left does not come to the point again
			m.ensureJobs(names...)
		case <-deadline:
			m.t.Fatalf("still alive, no job has come to %s for the %d. time", point, passage)
		}
	}
}

// TestKilledAtAnyMoment is the same without points.
func TestKilledAtAnyMoment(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	agents := suite.Count(1, 3)
	each := suite.Count(6, 300) / agents
	t.Run("agent", func(t *testing.T) {
		for i := range agents {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				m := newCrashAgent(t, w, fmt.Sprint("kill-anywhere-", i), first+uint64(i), few())
				rng := rand.New(rand.NewPCG(first+uint64(i), 5))
				for range each {
					m.killWithin(rng)
				}
				m.finishJobs()
				m.verify()
				writes, again := m.redundantWrites()
				if again > 0 {
					t.Errorf("%d of %d writes wrote what was there already", again, writes)
				}
			})
		}
	})
}

// killWithin kills an agent some time after its start.
func (m *crashAgent) killWithin(rng *rand.Rand) {
	m.t.Helper()
	m.ensureJobs("a", "b", "c", "d")
	l := m.start("")
	if rng.IntN(4) > 0 { // else it may die on the way to its feet
		m.awaitClaim(l)
	}
	timer := time.AfterFunc(time.Duration(rng.IntN(400))*time.Millisecond, func() { _ = l.cmd.Process.Kill() })
	defer timer.Stop()
	if !m.awaitEnd(l) {
		m.t.Fatal("ended by itself")
	}
}

// TestKilledWhileReleasing: a job was released and the process dies before it could record that.
func TestKilledWhileReleasing(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-released", first, few())
	want := suite.Count(1, 20)
	kills := 0
	for try := 0; kills < want; try++ {
		if try > 20*want {
			t.Fatalf("%d kills after %d tries", kills, try)
		}
		m.ensureJobs("a", "b", "c", "d")
		l := m.start("released=kill")
		until(t, "a job is at work", func() bool {
			select {
			case <-l.done: // killed earlier: an attempt that failed is released too
				return true
			default:
				return strings.Contains(m.log.String()[m.logStart:], stepped("applied"))
			}
		})
		_ = l.cmd.Process.Signal(syscall.SIGTERM)
		if m.awaitEnd(l) {
			kills++
		}
	}
	m.finishJobs()
	m.verify()
}

// TestKilledBetweenVerifyAndApply: an agent that verifies, by a rule of its config file, is
// killed before, between and after verification and application, again and again. Nothing
// that is not signed is ever written, and nothing that is signed is lost.
func TestKilledBetweenVerifyAndApply(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-verify", first, map[string]int{"a": small})
	m.jobsMayFail = true // what is not signed is refused
	signer, public := sshSigner(t)
	m.file(t, "allowed_signers", "ops@example.com "+public)
	config := m.file(t, "limpet.yaml", fmt.Sprintf(
		"git-verify:\n- url: \"*\"\n  mode: HEAD\n  principals: [ops@example.com]\n  files: {allowed_signers: %s/allowed_signers}\n", m.dir))
	m.args = append(m.args, "--config", config)
	mark := w.api.Mark(t)
	evil := map[int]bool{} // revisions that are not signed
	killedAt := func(point string) {
		t.Helper()
		m.pull("a", nil)
		l := m.start(point + "=kill")
		if !m.awaitEnd(l) {
			t.Fatalf("not killed at %s", point)
		}
	}
	kills := 0
	for range suite.Count(1, 10) {
		for _, point := range []string{failpoint.Claimed, failpoint.Fetched, failpoint.Verified, failpoint.Planned, failpoint.Applying,
			failpoint.Worked, failpoint.Recorded} {
			m.edit("a")
			// to which nothing comes that is not signed
			if point != failpoint.Verified && point != failpoint.Planned && point != failpoint.Applying {
				evil[m.revision["a"]] = true
				killedAt(point)
				kills++
				m.finishJobs()
				m.edit("a")
			}
			signHead(t, m.repo, signer)
			killedAt(point)
			kills++
			m.finishJobs()
			m.verifyContent()
		}
	}
	m.edit("a")
	evil[m.revision["a"]] = true
	m.pull("a", nil)
	m.finishJobs()
	m.edit("a")
	evil[m.revision["a"]] = true
	m.pull("a", nil)
	m.finishJobs()
	signHead(t, m.repo, signer)
	delete(evil, m.revision["a"]) // signed after all, and not applied before
	m.pull("a", nil)
	m.finishJobs()
	m.verify()
	writes := 0
	for _, q := range w.api.Requests(t, mark) {
		if !strings.Contains(q.Path, "/namespaces/"+m.namespace+"/dashboards") || q.Method == "GET" {
			continue
		}
		writes++
		for revision := range evil {
			if strings.Contains(string(q.Body), fmt.Sprintf(`"revision %d"`, revision)) {
				t.Errorf("revision %d is not signed and was written: %s", revision, q)
			}
		}
	}
	refused := 0
	for _, r := range m.history(t) {
		if r.State == "error" {
			refused++
			if !strings.Contains(r.Message, "is not signed") {
				t.Errorf("job %s: %s", r.Name, r.Message)
			}
		}
	}
	if refused != len(evil)+1 || writes == 0 {
		t.Errorf("%d jobs were refused of %d, %d writes", refused, len(evil)+1, writes)
	}
	repo, err := api.RepositoryView(&m.user.list(api.Repositories)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range repo.Status.Conditions {
		if c.Type == api.ConditionVerified && (c.Status != "True" || !strings.Contains(c.Message, "required by")) {
			t.Errorf("at the end: %+v", c)
		}
	}
}

// TestKilledWhileItWrites kills the agent at each point of a delete and of a move: one
// commit is made of each, and the API is as the branch.
func TestKilledWhilePushing(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-write", first, map[string]int{"a": small})
	m.repo.Git(t, "config", "http.receivepack", "true")
	repo := m.user.list(api.Repositories)[0]
	if err := unstructured.SetNestedSlice(repo.Object, []any{"write"}, "spec", "workflows"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.user.Resource(api.Repositories).Namespace(m.namespace).Update(t.Context(), &repo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	type kill struct{ action, point string }
	var kills []kill
	for range suite.Count(1, 5) {
		for _, point := range []string{failpoint.Fetched, failpoint.Composed, failpoint.Noted, failpoint.Pushed, failpoint.Published,
			failpoint.Planned, failpoint.Applying, failpoint.Worked, failpoint.Recorded} {
			kills = append(kills, kill{"delete", point})
		}
		kills = append(kills, kill{"move", failpoint.Pushed}, kill{"move", failpoint.Applying})
	}
	var changes []testenv.Change
	for i := range kills {
		changes = append(changes, testenv.Change{Path: fmt.Sprintf("a/from/target-%d.json", i),
			Data: fmt.Appendf(nil, `{"uid":"target-%d","title":"Target","tags":[],"panels":[],"schemaVersion":41}`, i)})
	}
	m.repo.Commit(t, "targets", changes...)
	m.pull("a", nil)
	m.finishJobs()
	for i, k := range kills {
		before := m.repo.Head(t)
		options := map[string]any{"paths": []any{fmt.Sprintf("from/target-%d.json", i)}}
		if k.action == "move" {
			options["targetPath"] = "to/"
		}
		m.jobsCreated++
		job := m.user.create(api.Jobs, fmt.Sprintf("a-%s-%d", k.action, m.jobsCreated), nil,
			map[string]any{"action": k.action, "repository": "a", k.action: options})
		m.jobs[string(job.GetUID())] = true
		if !m.awaitEnd(m.start(k.point + "=kill")) {
			t.Fatalf("%s: not killed at %s", k.action, k.point)
		}
		m.finishJobs()
		if got := m.repo.Git(t, "log", "--format=%s", before+"..main"); !strings.HasSuffix(got, " from Grafana "+job.GetName()) ||
			strings.Contains(got, "\n") {
			t.Errorf("%s, killed at %s: commits %q", k.action, k.point, got)
		}
	}
	m.verify()
	m.repo.Git(t, "fsck", "--full", "--strict")
	t.Logf("%d kills", len(kills))
}

// TestKilledWhileLeaving kills the agent at each point of the jobs on what a deleted Repository has
// left, and of a test job: each ends once, and nothing is left or half released.
func TestKilledWhileLeaving(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-leave", first, map[string]int{"a": small})
	repos := m.user.Resource(api.Repositories).Namespace(m.namespace)
	repo := m.user.list(api.Repositories)[0]
	spec := repo.Object["spec"].(map[string]any)
	kills := 0
	run := func(action, point string, options map[string]any) {
		t.Helper()
		m.jobsCreated++
		options["action"], options["repository"] = action, "a"
		job := m.user.create(api.Jobs, fmt.Sprintf("a-%s-%d", strings.ToLower(action), m.jobsCreated), nil, options)
		m.jobs[string(job.GetUID())] = true
		if !m.awaitEnd(m.start(point + "=kill")) {
			t.Fatalf("%s: not killed at %s", action, point)
		}
		kills++
		m.finishJobs()
	}
	for range suite.Count(1, 5) {
		for _, point := range []string{failpoint.Working, failpoint.Applying, failpoint.Worked, failpoint.Recorded, failpoint.Posted,
			failpoint.Deleted} {
			for _, action := range []string{"releaseResources", "deleteResources"} {
				m.ensureJobs("a")
				m.finishJobs()
				if err := repos.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				run(action, point, map[string]any{})
				for _, kind := range []schema.GroupVersionResource{dashboards, {Group: api.FolderGroup, Version: "v1", Resource: "folders"}} {
					for _, u := range m.user.list(kind) {
						if action == "deleteResources" || u.GetAnnotations()[api.AnnoManagerID] != "" {
							t.Errorf("%s, killed at %s: left %s %v", action, point, u.GetName(), u.GetAnnotations())
						}
						if err := m.user.Resource(kind).Namespace(m.namespace).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
							t.Fatal(err)
						}
					}
				}
				m.user.create(api.Repositories, "a", nil, spec)
			}
			if point != failpoint.Applying {
				run("test", point, map[string]any{"test": map[string]any{"duration": "1s", "progressUpdates": int64(2)}})
			}
		}
	}
	m.verifyOnce()
	m.verifyFiles()
	t.Logf("%d kills", kills)
}

// TestKilledWhileFixingFolders kills the agent at each point of a fixFolderMetadata: one commit is
// made of each.
func TestKilledWhileFixingFolders(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-folders", first, map[string]int{"a": small})
	m.repo.Git(t, "config", "http.receivepack", "true")
	repo := m.user.list(api.Repositories)[0]
	if err := unstructured.SetNestedSlice(repo.Object, []any{"write"}, "spec", "workflows"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.user.Resource(api.Repositories).Namespace(m.namespace).Update(t.Context(), &repo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	points := []string{failpoint.Fetched, failpoint.Composed, failpoint.Noted, failpoint.Pushed, failpoint.Published, failpoint.Worked,
		failpoint.Recorded}
	for i := range suite.Count(1, 5) * len(points) {
		point, dir := points[i%len(points)], fmt.Sprintf("a/new-%d/", i)
		m.repo.Commit(t, "another directory", testenv.Change{Path: dir + ".keep", Data: []byte("x")})
		before := m.repo.Head(t)
		m.jobsCreated++
		job := m.user.create(api.Jobs, fmt.Sprintf("a-fix-%d", m.jobsCreated), nil,
			map[string]any{"action": "fixFolderMetadata", "repository": "a"})
		m.jobs[string(job.GetUID())] = true
		if !m.awaitEnd(m.start(point + "=kill")) {
			t.Fatalf("not killed at %s", point)
		}
		m.finishJobs()
		if got := m.repo.Git(t, "log", "--format=%s", before+"..main"); got != "Add folder metadata files" {
			t.Errorf("killed at %s: commits %q", point, got)
		}
		if got := m.repo.Git(t, "ls-tree", "--name-only", "main", dir); got != dir+"_folder.json" {
			t.Errorf("killed at %s: files %s", point, got)
		}
	}
	m.pull("a", nil)
	m.finishJobs()
	m.verifyOnce()
	m.verifyFiles()
	m.repo.Git(t, "fsck", "--full", "--strict")
}

// TestUpgrade: another version replaces the file of a running agent, forth and back, and takes over
// after SIGTERM, as a package does it, or after a kill: no job is lost or done twice.
func TestUpgrade(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	m := newCrashAgent(t, newServers(t), "upgrade", suite.Seed(t), few())
	versions, builds := []string{"1.0.0", "1.1.0"}, [][]byte{}
	for _, version := range versions {
		path := filepath.Join(t.TempDir(), version)
		if err := suite.Program(path, "-ldflags", "-X limpet/tui/cli/command.Version="+version); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		builds = append(builds, data)
	}
	installed := filepath.Join(t.TempDir(), "limpet")
	install := func(i int) {
		fresh := installed + ".new"
		if err := errors.Join(os.WriteFile(fresh, builds[i], 0o755), os.Rename(fresh, installed)); err != nil {
			t.Fatal(err)
		}
	}
	install(0)
	for round := range suite.Count(4, 20) {
		l := m.startAs(installed, "")
		m.ensureJobs("a", "b", "c", "d")
		m.awaitClaim(l)
		install((round + 1) % 2)
		signal := syscall.SIGTERM
		if round%4 == 3 {
			signal = syscall.SIGKILL
		}
		if err := l.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		m.awaitEnd(l)
		if started := m.log.String()[m.logStart:]; !strings.Contains(started, `"version":"`+versions[round%2]+`"`) {
			t.Fatalf("round %d is not of %s", round, versions[round%2])
		}
	}
	m.finishJobs()
	m.verify()
	if writes, again := m.redundantWrites(); again > 0 {
		t.Errorf("%d of %d writes wrote what was there already", again, writes)
	}
}

// TestKilledWhileWritingDirectory kills the agent while a job writes to a directory: a repeat ends
// it, and nothing is lost.
func TestKilledWhileWritingDirectory(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-local", first, map[string]int{"a": small})
	dir := filepath.Join(m.dir, "boards")
	m.args = append(m.args, "--local-prefix", m.dir)
	m.user.create(api.Repositories, "local", nil, map[string]any{"title": "L", "type": "local", "workflows": []any{"write"},
		"local": map[string]any{"path": dir}, "sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(3600)}})
	for i, action := range []string{"move", "delete", "push", "migrate"} {
		for at := 1; at <= 3; at++ {
			for n := range 4 {
				m.file(t, fmt.Sprintf("boards/%s/%d/b%d.json", action, at, n), fmt.Sprintf(
					`{"uid":"%s-%d-%d","title":"B","tags":[],"panels":[],"schemaVersion":41}`, action, at, n))
			}
			paths := []any{}
			for n := range 3 {
				paths = append(paths, fmt.Sprintf("%s/%d/b%d.json", action, at, n))
			}
			options := map[string]any{"paths": paths, "targetPath": fmt.Sprintf("moved/%d/", at)}
			switch action {
			case "delete":
				delete(options, "targetPath")
			case "push", "migrate":
				options = map[string]any{}
				for n := range 3 {
					u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "dashboard.grafana.app/v1", "kind": "Dashboard",
						"metadata": map[string]any{"name": fmt.Sprintf("%s-new-%d-%d", action, at, n)},
						"spec":     map[string]any{"title": fmt.Sprint(action, at, n)}}}
					if _, err := m.user.Resource(dashboards).Namespace(m.namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			m.jobsCreated++
			job := m.user.create(api.Jobs, fmt.Sprintf("local-%s-%d", action, m.jobsCreated), nil,
				map[string]any{"action": action, "repository": "local", action: options})
			m.jobs[string(job.GetUID())] = true
			if !m.awaitEnd(m.start(fmt.Sprintf("written=kill@%d", at))) {
				t.Fatalf("%s: not killed at file %d", action, at)
			}
			m.finishJobs()
			have, _ := filepath.Glob(filepath.Join(dir, "*", fmt.Sprint(at), "*.json"))
			top, _ := filepath.Glob(filepath.Join(dir, "*.json"))
			if stray, _ := filepath.Glob(filepath.Join(dir, "*", "*", ".limpet-*")); len(stray) > 0 {
				t.Errorf("%s: %q", action, stray)
			}
			if want := []int{4, 5, 9, 13}[i]; len(have) != want || len(top) != []int{0, 0, 3 * at, 18 + 3*at}[i] {
				t.Errorf("%s, killed at file %d: %d files, %q", action, at, len(have), top)
			}
		}
	}
}

// TestKillDuringImport: whenever an import is killed, the directory has the whole file or none.
func TestKillDuringImport(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t, "--local-git-prefix", "/")
	inbox := filepath.Join(h.dir, "carried")
	if err := os.Mkdir(inbox, 0o700); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	repo := testenv.Repo(t, 1, 1)
	repo.Commit(t, "Noise", testenv.Change{Path: "noise", Data: noise})
	file := filepath.Join(h.dir, "x.bundle")
	repo.Git(t, "bundle", "create", "-q", file, "main", "HEAD")
	h.must(t, 0, "repo", "create", "boards", "--url", "bundle://"+inbox)
	whole, killed := read(t, file), 0
	for range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.command(ctx, t, "repo", "import", file).Run() }()
		for len(ended) == 0 {
			if copies, _ := filepath.Glob(filepath.Join(inbox, ".limpet-*.tmp")); len(copies) > 0 {
				break // the copy has begun
			}
		}
		cancel()
		if <-ended != nil {
			killed++
		}
		if data, err := os.ReadFile(filepath.Join(inbox, "x.bundle")); err == nil && !bytes.Equal(data, whole) {
			t.Fatalf("%d bytes of %d", len(data), len(whole))
		}
		os.Remove(filepath.Join(inbox, "x.bundle"))
	}
	if killed == 0 {
		t.Error("no import was killed while it copied")
	}
	h.must(t, 0, "repo", "import", file)
	if !bytes.Equal(read(t, filepath.Join(inbox, "x.bundle")), whole) {
		t.Error("another file")
	}
	if left, _ := filepath.Glob(filepath.Join(inbox, ".limpet-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
