package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// childEnv tells the test binary to be another process of a test: "mode argument".
const childEnv = "STATE_TEST_CHILD"

// beChild does what another process of a test has to do and says whether this is one.
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

// writeForEver writes from four goroutines and prints each value when the store has acknowledged it.
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

// TestKill kills a writing process at random times. What it was told is written must be there, as it was or replaced by
// what was written after it, and the file must be sound.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	rng := rand.New(rand.NewPCG(seeded(t), 6))
	acked := map[string]int64{}
	kills := times(10, 200) // each costs about 150 ms
	for round := range kills {
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

// killed9 runs the writer for a while after its first acknowledgement, kills it and returns what it printed.
func killed9(t *testing.T, path string, after time.Duration) []string {
	t.Helper()
	cmd := child("write", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

// TestLockedByProcess: a second process hears of the first; kill -9 frees the lock; a clean end leaves no trace.
func TestLockedByProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	for _, end := range []string{"kill", "close"} {
		cmd := child("hold", path)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !bufio.NewScanner(out).Scan() {
			t.Fatal("child did not open the file")
		}
		_, _, err = Open(context.Background(), Options{Path: path})
		var locked *LockedError
		if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid || locked.Version != "v9" {
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
