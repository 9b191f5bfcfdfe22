package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/state"
	"limpet/sync/testenv"
	"limpet/sync/testenv/powercut"
	"limpet/sync/testenv/suite"
)

// standalone is an agent with the embedded API: Repositories, jobs and dashboards are in its state
// file.
type standalone struct {
	*home
	repo      *testenv.Repository
	manifests string
}

func newStandalone(t *testing.T, repo *testenv.Repository, url string) *standalone {
	t.Helper()
	i := &standalone{home: newHome(t), repo: repo}
	i.manifests = filepath.Dir(i.file(t, "site/boards.yaml", fmt.Sprintf(`
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: boards, namespace: default}
spec:
  title: Boards
  type: git
  git: {url: %q, branch: %s, path: %s}
  sync: {enabled: true, target: folder, intervalSeconds: 3600}
`, url, testenv.Branch, testenv.Directory)))
	return i
}

// start starts the agent and waits until everything is pulled. An ended job may come back out
// of a damaged file with its old claim and is requeued when that expires, so the lease is short.
func (i *standalone) start(t *testing.T) *daemon {
	t.Helper()
	d := i.daemon(t, "--manifests", i.manifests, "--claim-expiry", shortExpiry.String(), "--lease-renewal-interval", shortRenewal.String())
	i.pull(t)
	return d
}

func (i *standalone) pull(t *testing.T) {
	t.Helper()
	until(t, "everything is pulled", func() bool { return i.run(t, "repo", "pull", "boards", "--full", "--wait").code == 0 })
}

// stop stops the agent with SIGTERM.
func (i *standalone) stop(t *testing.T, d *daemon) {
	t.Helper()
	if code := d.stop(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
}

// restartFrom starts a new home with a damaged state file and checks what every start must achieve.
func (i *standalone) restartFrom(t *testing.T, c cut, url string) *standalone {
	t.Helper()
	next := newStandalone(t, i.repo, url)
	c.restore(t, next.home)
	next.stop(t, next.start(t))
	boardsMatch(t, next.home, "default", "boards", i.repo)
	next.sound(t)
	if left, err := filepath.Glob(next.state() + ".*ing"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
	return next
}

// cut is what a power cut may leave of a state file.
type cut struct {
	at         int // transaction
	image, key []byte
}

// cutPower lets work run with agents of this home that keep a journal, and returns what power cuts
// within their transactions may leave.
func (h *home) cutPower(t *testing.T, count int, work func()) (cuts []cut) {
	t.Helper()
	draw, journal := rand.New(rand.NewPCG(suite.Seed(t), 23)), t.TempDir()
	program, err := failpointBinary()
	if err != nil {
		t.Fatal(err)
	}
	plain := h.env
	h.program, h.env = program, append(plain[:len(plain):len(plain)], "LIMPET_STATE_JOURNAL="+journal)
	work()
	h.program, h.env = "", plain
	all, err := powercut.Read(journal)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(h.state() + ".key")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	picks := powercut.Draw(draw, all, count)
	var before []byte
	for at, tx := range all {
		if at > 0 && tx.Inode != all[at-1].Inode {
			before = nil
		}
		after := tx.After(before)
		if image := after; picks[at] {
			if before != nil {
				image, _ = powercut.Tear(draw, before, after)
			}
			cuts = append(cuts, cut{at, image, key})
		}
		before = after
	}
	return cuts
}

// restore puts it into a new home.
func (c cut) restore(t *testing.T, h *home) {
	t.Helper()
	t.Logf("cut at %d", c.at)
	h.file(t, "state/limpet.db", string(c.image))
	h.file(t, "state/limpet.db.owner", `{"pid":1}`)
	if c.key != nil {
		h.file(t, "state/limpet.db.key", string(c.key))
	}
}

// sound checks the state file.
func (h *home) sound(t *testing.T) {
	t.Helper()
	if check := h.must(t, 0, "store", "check"); !strings.Contains(check.out, " 0 problems") {
		t.Errorf("store check: %s", check.out)
	}
}

// contents are the UIDs of the queued and the ended jobs of a state file.
type contents struct{ jobs, ended map[string]bool }

func contentsOf(t *testing.T, path string) contents {
	t.Helper()
	s, _, err := state.Open(t.Context(), state.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	page, err := s.Objects(ctx, state.ObjectQuery{Resource: "provisioning.grafana.app/jobs"})
	records, historyErr := s.History(ctx, state.Query{})
	if err := errors.Join(err, historyErr, s.Close()); err != nil {
		t.Fatal(err)
	}
	c := contents{map[string]bool{}, map[string]bool{}}
	for _, o := range page.Items {
		var job struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(o.Data, &job); err != nil {
			t.Fatal(err)
		}
		c.jobs[job.Metadata.UID] = true
	}
	for _, r := range records {
		c.ended[r.UID] = true
	}
	return c
}

// TestPowerCut cuts the power within the transactions of a working agent and starts the real
// program on the file, without mirrors: no job is lost or done twice, and the dashboards are those
// of the branch.
func TestPowerCut(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	repo := testenv.Repo(t, 3, large)
	url := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", repo.Dir)
	i := newStandalone(t, repo, url)
	cuts := i.cutPower(t, suite.Count(2, 40), func() {
		d := i.start(t)
		for round := range 3 {
			repo.Edit(t, repo.Dashboards()[round].Path, repo.Dashboards()[round+9].Path)
			i.must(t, 0, "delete", "dashboard", repo.Dashboards()[20+round].UID, "-n", "default")
			i.pull(t)
		}
		i.must(t, 0, "store", "compact")
		i.pull(t)
		i.stop(t, d)
	})
	for _, cut := range cuts {
		probe := filepath.Join(t.TempDir(), "limpet.db")
		if err := os.WriteFile(probe, cut.image, 0o600); err != nil {
			t.Fatal(err)
		}
		was := contentsOf(t, probe)
		now := i.restartFrom(t, cut, url)
		records := map[string]int{}
		for _, r := range now.history(t) {
			records[r.UID]++
			if r.State != "success" {
				t.Errorf("cut at %d: job %s ended as %s: %s", cut.at, r.Name, r.State, r.Message)
			}
		}
		for _, uids := range []map[string]bool{was.jobs, was.ended} {
			for uid := range uids {
				if records[uid] != 1 {
					t.Errorf("cut at %d: job %s has %d records", cut.at, uid, records[uid])
				}
			}
		}
	}
}

// TestDamageIsRepairedAtWork: a large state file that was closed in order is opened at
// once, so that damage shows later, when a record is read.
func TestDamageIsRepairedAtWork(t *testing.T) {
	suite.Full(t)
	repo := testenv.Repo(t, 2, 1600)
	url := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", repo.Dir)
	i := newStandalone(t, repo, url)
	i.stop(t, i.start(t))
	data, err := os.ReadFile(i.state())
	if err != nil || len(data) <= 4<<20 {
		t.Fatalf("%v; the state file has %d bytes only, so it is checked before it is opened", err, len(data))
	}
	data = bytes.ReplaceAll(data, []byte(url), bytes.Repeat([]byte("x"), len(url)))
	frames, magic := 0, []byte{0x28, 0xb5, 0x2f, 0xfd} // zstd: RFC 8878, 3.1.1
	for rest := data; bytes.Contains(rest, magic); frames++ {
		rest = rest[bytes.Index(rest, magic)+len(magic):]
		if frames%10 == 0 && len(rest) > 32 { // not only one: it may be of an older page
			copy(rest, bytes.Repeat([]byte("x"), 32))
		}
	}
	if frames < 1000 {
		t.Fatalf("%d bodies in the state file", frames)
	}
	if err := os.WriteFile(i.state(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	i.start(t)
	boardsMatch(t, i.home, "default", "boards", repo)
	i.must(t, 0, "store", "check")
	aside, err := filepath.Glob(i.state() + ".corrupt-*")
	if err != nil || len(aside) != 1 {
		t.Errorf("put aside: %q %v", aside, err)
	}
}
