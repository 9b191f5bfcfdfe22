package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"limpet/state/frame"
	"limpet/sync/testenv/powercut"
)

// worker is the program limpet at work on one state file, with a journal.
type worker struct {
	t                  *testing.T
	program, dir, file string
}

func newWorker(t *testing.T) *worker {
	t.Helper()
	dir := t.TempDir()
	w := &worker{t: t, program: filepath.Join(dir, "limpet"), dir: dir, file: filepath.Join(dir, "state", "limpet.db")}
	if out, err := exec.Command("go", "build", "-tags", "failpoints", "-o", w.program, "limpet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *worker) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.program, args...)
	cmd.Env = []string{"HOME=" + w.dir, "TMPDIR=" + w.dir, "PATH=" + os.Getenv("PATH"), "LIMPET_STATE=" + w.file,
		"LIMPET_STATE_JOURNAL=" + filepath.Join(w.dir, "journal"), "LIMPET_TELEMETRY_LISTEN=127.0.0.1:0"}
	return cmd
}

func (w *worker) run(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("limpet %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// pull pulls a repository whole, as soon as the agent is there and has no job for it.
func (w *worker) pull(repo string) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for w.command("repo", "pull", repo, "--full", "--wait", "-q").Run() != nil {
		select {
		case <-deadline:
			w.t.Fatalf("%s cannot be pulled", repo)
		case <-tick.C:
		}
	}
}

// life lets an agent do what it is for: claims, marks, results, objects of the embedded API, a prune of the history and
// a compaction. Then it is stopped, in order: a kill between a transaction and its entry would leave the entry out.
func (w *worker) life() {
	w.t.Helper()
	cmd := w.command("demo")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var drained sync.WaitGroup
	drained.Go(func() { _, _ = io.Copy(io.Discard, out) })
	w.pull("network")
	for _, board := range strings.Fields(w.run("get", "dashboards", "-n", "default", "-o", "name"))[:9] {
		w.run("delete", "dashboard", filepath.Base(board), "-n", "default")
	}
	for _, repo := range []string{"network", "plant-east", "vessels"} {
		w.pull(repo)
	}
	w.run("history", "prune", "--older-than", "1s")
	w.run("store", "compact")
	w.pull("vessels")
	err = cmd.Process.Signal(syscall.SIGTERM)
	drained.Wait()
	if err = errors.Join(err, cmd.Wait()); err != nil {
		w.t.Fatal(err)
	}
}

// apply returns the file and what is in it after a transaction.
func apply(r powercut.Transaction, before image, sameFile bool) image {
	data := before.data
	if !sameFile {
		data = nil
	}
	now := image{data: r.After(data), want: maps.Clone(before.want)}
	for _, op := range r.Ops {
		key := op.Bucket + " " + string(op.Key)
		if op.Gone {
			delete(now.want, key)
		} else {
			now.want[key] = string(op.Body)
		}
	}
	return now
}

// rawRecords reads every record of a store as it was written.
func rawRecords(s *Store) (contents, error) {
	out := contents{}
	err := s.view(context.Background(), func(v view) error {
		for _, b := range frame.DataBuckets {
			err := v.whole(context.Background(), b, func(k []byte, f frame.Frame) error {
				out[string(b)+" "+string(k)] = string(f.Body)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// TestPowerCutOfAnAgent records what the real agent writes and cuts the power within any of its transactions, as torn
// describes: what was acknowledged is there, and nothing was set aside.
func TestPowerCutOfAnAgent(t *testing.T) {
	t.Parallel()
	first := seeded(t)
	w := newWorker(t)
	w.run("demo", "--once")
	for range times(1, 4) {
		w.life()
	}
	all, err := powercut.Read(filepath.Join(w.dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(w.file + ".key")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	cuts := times(300, 10_000)
	type cut struct {
		n, at int
		img   image
		other []byte // a compacted file in the making
	}
	todo := make(chan cut)
	var hands sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		dir := quickDir(t)
		hands.Go(func() {
			for c := range todo {
				if err := c.img.survives(dir, key, c.other); err != nil {
					t.Errorf("cut %d in transaction %d of %d, seed %d: %v", c.n, c.at, len(all), first, err)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(first, 17))
	before := image{want: contents{}}
	kinds, n, replaced := map[string]int{}, 0, 0
	for i, r := range all {
		same := i > 0 && r.Inode == all[i-1].Inode
		after := apply(r, before, same)
		for _, op := range r.Ops {
			kinds[cmp.Or(map[bool]string{true: "deletions"}[op.Gone], op.Bucket)]++
		}
		for i > 0 && n*(len(all)-1) < cuts*i {
			n++
			switch {
			case same:
				todo <- cut{n: n, at: i, img: torn(rng, before, after)}
			case rng.IntN(2) == 0:
				todo <- cut{n: n, at: i, img: after}
			default:
				todo <- cut{n: n, at: i, img: before, other: after.data[:rng.IntN(len(after.data))]}
			}
		}
		if i > 0 && !same {
			replaced++
		}
		before = after
	}
	close(todo)
	hands.Wait()
	for _, b := range []string{"claims", "history", "objects", "deletions"} {
		if kinds[b] < 10 {
			t.Errorf("the agent has written %d %s: %v", kinds[b], b, kinds)
		}
	}
	if replaced == 0 {
		t.Error("no compaction was recorded")
	}
	t.Logf("fault: %d images of power cuts in %d transactions of an agent %v, %d compactions: all opened, nothing lost", n, len(all), kinds, replaced)
}

// survives opens the image as the next start does.
func (i image) survives(dir string, key, other []byte) error {
	path := filepath.Join(dir, "limpet.db")
	err := errors.Join(os.WriteFile(path, i.data, 0o600), os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
	if key != nil {
		err = errors.Join(err, os.WriteFile(path+".key", key, 0o600))
	}
	if other != nil {
		err = errors.Join(err, os.WriteFile(path+compacting, other, 0o600))
	}
	if err != nil {
		return err
	}
	s, r, err := Open(context.Background(), Options{Path: path})
	if err != nil {
		return err
	}
	got, err := rawRecords(s)
	if err != nil || r.Quarantined != "" || !r.Unclean || !maps.Equal(got, i.want) {
		err = fmt.Errorf("report %+v, %w, %s", r, err, differ(got, i.want))
	}
	if names, globErr := filepath.Glob(path + ".*ing"); globErr != nil || len(names) > 0 {
		err = errors.Join(err, globErr, fmt.Errorf("left behind: %q", names))
	}
	return errors.Join(err, s.Close())
}
