package state

import (
	"bufio"
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"limpet/state/frame"
	"limpet/state/repair"
	"limpet/sync/testenv/powercut"
	"limpet/sync/testenv/suite"
)

// childEnv tells the test binary to be another process of a test: "mode argument".
const childEnv = "STATE_TEST_CHILD"

// beChild does what another process of a test has to do and reports whether this is one.
func beChild() bool {
	mode, arg, _ := strings.Cut(os.Getenv(childEnv), " ")
	var err error
	switch mode {
	case "":
		return false
	case "write":
		err = writeForEver(arg)
	case "hold":
		err = hold(arg)
	case "late":
		_, _, err = Open(context.Background(), Options{Path: "unused"})
	default:
		err = childHere(mode, arg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// child prepares the test binary as another process.
func child(mode, arg string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+mode+" "+arg)
	cmd.Stderr = os.Stderr
	return cmd
}

// writeForEver writes from four goroutines and prints each value when the store has acknowledged
// it.
func writeForEver(path string) error {
	s, r, err := Open(context.Background(), Options{Path: path})
	if err != nil {
		return err
	}
	if r.Quarantined != "" {
		return fmt.Errorf("file was set aside after a kill: %+v", r)
	}
	began := time.Now().UnixNano()
	var all sync.WaitGroup
	errs := make([]error, 4)
	for g := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(began), uint64(g)))
			for i := 0; errs[g] == nil; i++ {
				key, value := fmt.Sprint("w", g, "-", i%7), strconv.FormatInt(began+int64(i), 10)
				switch rng.IntN(3) {
				case 0:
					errs[g] = s.PutFact(context.Background(), key, []byte(value))
					fmt.Printf("fact %s %s\n", key, value)
				case 1:
					_, errs[g] = s.Mutate(context.Background(), ObjectKey{"g/jobs", "ns", key}, put(value))
					fmt.Printf("object %s %s\n", key, value)
				case 2:
					errs[g] = s.PutRecord(context.Background(), Record{UID: key, Message: value, Finished: time.UnixMilli(int64(rng.IntN(1e9)))})
					fmt.Printf("record %s %s\n", key, value)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// TestKill kills a writing process at random times. What it was told is written must be there, as
// it was or replaced by what was written after it, and the file must be sound.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	rng := rand.New(rand.NewPCG(seeded(t), 6))
	acked := map[string]int64{}
	kills := times(5, 200)                                                          // each costs about 150 ms
	for round := 0; round < kills || len(acked) < 50 && round < 10*kills; round++ { // a busy machine writes little in a round
		lines := killed9(t, path, time.Duration(rng.IntN(120))*time.Millisecond)
		for _, line := range lines {
			kind, rest, _ := strings.Cut(line, " ")
			key, value, _ := strings.Cut(rest, " ")
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				continue // the last line may be torn
			}
			acked[kind+" "+key] = max(acked[kind+" "+key], n)
		}
		s, r := reopened(t, Options{Path: path})
		if !r.Unclean || r.Quarantined != "" {
			t.Fatalf("round %d: report %+v", round, r)
		}
		for what, n := range acked {
			if got, err := valueOf(s, what); err != nil || got < n {
				t.Errorf("round %d: %s is %d, acknowledged was %d, %v", round, what, got, n, err)
			}
		}
		Closed(t, s)
	}
	if len(acked) < 50 {
		t.Errorf("only %d values were written", len(acked))
	}
	t.Logf("fault: %d kills of a writing process, %d values followed, none lost", kills, len(acked))
}

// killed9 runs the writer for a while after its first acknowledgement, kills it and returns what it
// printed.
func killed9(t *testing.T, path string, after time.Duration) []string {
	t.Helper()
	cmd := child("write", path)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var lines []string
	var timer *time.Timer
	for scan := bufio.NewScanner(out); scan.Scan(); lines = append(lines, scan.Text()) {
		if timer == nil {
			timer = time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("writer was not killed: %v", err)
	}
	return lines
}

// valueOf reads the number under "kind key".
func valueOf(s *Store, what string) (int64, error) {
	ctx := context.Background()
	kind, key, _ := strings.Cut(what, " ")
	var text []byte
	var err error
	switch kind {
	case "fact":
		text, err = s.Fact(ctx, key)
	case "object":
		var o Object
		o, err = s.Object(ctx, ObjectKey{"g/jobs", "ns", key})
		text = o.Data
	case "record":
		var records []Record
		records, err = s.History(ctx, Query{UID: key})
		if len(records) == 1 {
			text = []byte(records[0].Message)
		}
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

// hold opens the file, says so and waits for the end of its standard input.
func hold(path string) error {
	s, _, err := Open(context.Background(), Options{Path: path, Version: "v9", Socket: "/tmp/x.sock"})
	if err != nil {
		return err
	}
	fmt.Println("open")
	_ = bufio.NewScanner(os.Stdin).Scan()
	return s.Close()
}

// TestLockedByProcess: a second process hears of the first; kill -9 frees the lock; a clean end
// leaves no trace.
func TestLockedByProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	for _, end := range []string{"kill", "close"} {
		cmd := child("hold", path)
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		if !bufio.NewScanner(out).Scan() {
			t.Fatal("child did not open the file")
		}
		_, _, err = Open(context.Background(), Options{Path: path})
		var locked *LockedError
		if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid || locked.Version != "v9" ||
			locked.Socket != "/tmp/x.sock" || time.Since(locked.Since) > time.Minute {
			t.Errorf("error %v", err)
		}
		if end == "kill" {
			_ = cmd.Process.Kill()
		} else if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); (err == nil) != (end == "close") {
			t.Errorf("child: %v", err)
		}
		s, r := reopened(t, Options{Path: path})
		if r.Unclean != (end == "kill") || r.Quarantined != "" {
			t.Errorf("after %s: %+v", end, r)
		}
		Closed(t, s)
	}
}

// image is the file after one transaction, with what was in it.
type image struct {
	data []byte
	want contents
}

// images returns the file after each of n transactions.
func images(t *testing.T, n int) (out []image) {
	t.Helper()
	path := filepath.Join(quickDir(t), "limpet.db")
	s := opened(t, Options{Path: path})
	rng := rand.New(rand.NewPCG(11, 12))
	m := newModel(150)
	for range n {
		must(t, m.step(s, rng))
		data, err := os.ReadFile(path)
		must(t, err)
		out = append(out, image{data, m.contents()})
	}
	return out
}

// torn is what a power cut between two images can leave.
func torn(rng *rand.Rand, before, after image) image {
	data, whole := powercut.Tear(rng, before.data, after.data)
	if whole {
		return after
	}
	return image{data, before.want}
}

// cuts are the power cuts that go through a whole Open; verifiedCuts are only verified, which takes
// a millisecond.
const (
	cuts         = 30
	verifiedCuts = 600
)

// TestPowerCut: after a power cut at any moment the file opens unaided, with all that was
// acknowledged and nothing set aside.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := images(t, 200)
	path := filepath.Join(quickDir(t), "limpet.db")
	rng := rand.New(rand.NewPCG(13, 14))
	for n := range verifiedCuts {
		i := rng.IntN(len(all) - 1)
		img := torn(rng, all[i], all[i+1])
		must(t, os.WriteFile(path, img.data, 0o600))
		if err := repair.Inspect(ctx, path, current.version); err != nil {
			t.Fatalf("cut %d between writes %d and %d: %v", n, i, i+1, err)
		}
		if n >= cuts {
			continue
		}
		must(t, os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
		s, r := reopened(t, Options{Path: path})
		got, err := everything(ctx, s)
		if err != nil || r.Quarantined != "" || !r.Unclean || !maps.Equal(got, img.want) {
			t.Errorf("cut %d between writes %d and %d: report %+v, %v, %s", n, i, i+1, r, err, differ(got, img.want))
		}
		Closed(t, s)
	}
}

// differ names the first keys that are not the same.
func differ(got, want contents) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			out = append(out, k)
		}
	}
	return fmt.Sprintf("%d and %d records, %q", len(got), len(want), out[:min(len(out), 3)])
}

// worker is the program limpet at work on one state file, with a journal.
type worker struct {
	t                  *testing.T
	program, dir, file string
}

func newWorker(t *testing.T) *worker {
	t.Helper()
	dir := t.TempDir()
	w := &worker{t: t, program: filepath.Join(dir, "limpet"), dir: dir, file: filepath.Join(dir, "state", "limpet.db")}
	must(t, suite.Program(w.program, "-tags", "failpoints"))
	must(t, os.Mkdir(filepath.Join(dir, "journal"), 0o700))
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

// life lets an agent do what it is for: claims, marks, results, objects of the embedded API, a
// prune of the history and a compaction. Then it is stopped cleanly: a kill between a transaction
// and its entry would leave the entry out.
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
	large := filepath.Join(w.dir, "large.json") // its pages are free when it is deleted
	must(w.t, os.WriteFile(large, fmt.Appendf(nil, `{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard",`+
		`"metadata":{"name":"large","namespace":"default"},"spec":{"title":"Large","text":%q}}`, incompressible(1<<20)), 0o600))
	w.run("apply", "-f", large)
	w.run("delete", "dashboard", "large", "-n", "default")
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
			err := v.scanVerified(context.Background(), b, func(k []byte, f frame.Frame) error {
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

// TestPowerCutOfAnAgent records what the real agent writes and cuts the power within any of its
// transactions, as torn describes: what was acknowledged is there, and nothing was set aside.
func TestPowerCutOfAnAgent(t *testing.T) {
	t.Parallel()
	first := seeded(t)
	w := newWorker(t)
	w.run("demo", "--once")
	for range times(1, 4) {
		w.life()
	}
	all, err := powercut.Read(filepath.Join(w.dir, "journal"))
	must(t, err)
	key, err := os.ReadFile(w.file + ".key")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	cuts := times(80, 10_000)
	type cut struct {
		n, at int
		img   image
		other []byte // a compacted file in the making
	}
	queue := make(chan cut)
	var hands sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		dir := quickDir(t)
		hands.Go(func() {
			for c := range queue {
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
				queue <- cut{n: n, at: i, img: torn(rng, before, after)}
			case rng.IntN(2) == 0:
				queue <- cut{n: n, at: i, img: after}
			default:
				queue <- cut{n: n, at: i, img: before, other: after.data[:rng.IntN(len(after.data))]}
			}
		}
		if i > 0 && !same {
			replaced++
		}
		before = after
	}
	close(queue)
	hands.Wait()
	for _, b := range []string{"claims", "history", "objects", "deletions"} {
		if kinds[b] < 10 {
			t.Errorf("the agent has written %d %s: %v", kinds[b], b, kinds)
		}
	}
	if replaced == 0 {
		t.Error("no compaction was recorded")
	}
	t.Logf("fault: %d images of power cuts in %d transactions of an agent %v, %d compactions: all opened, nothing lost", n, len(all), kinds,
		replaced)
}

// survives opens the image as the next start does.
func (i image) survives(dir string, key, other []byte) error {
	path := filepath.Join(dir, "limpet.db")
	err := errors.Join(os.WriteFile(path, i.data, 0o600), os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600))
	if key != nil {
		err = errors.Join(err, os.WriteFile(path+".key", key, 0o600))
	}
	if other != nil {
		err = errors.Join(err, os.WriteFile(path+suffixCompacting, other, 0o600))
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
