package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// An agent on small disks: another process of this test mounts memory file systems over the
// directories of the state file and of the mirrors, in a mount namespace of its own, starts the
// agent there, and does to the disks what a test asks for.

const (
	disksEnv   = "LIMPET_TEST_DISKS" // the state directory: this process is the keeper of disks
	stateSize  = "size=5m"
	mirrorSize = "size=6m"
	noMount    = 77 // exit code of a keeper that was not allowed to mount
)

// onSmallDisks runs the mounting process and reports whether this process is one.
func onSmallDisks() bool {
	dir := os.Getenv(disksEnv)
	if dir == "" {
		return false
	}
	if err := errors.Join(mountDisk(dir, stateSize), mountDisk(filepath.Join(dir, "mirrors"), mirrorSize)); err != nil {
		fmt.Fprintln(os.Stderr, "mount:", err)
		os.Exit(noMount)
	}
	agent := exec.Command(os.Args[1], os.Args[2:]...)
	agent.Stdout, agent.Stderr = os.Stderr, os.Stderr
	if err := agent.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = agent.Wait() }()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		what, disk, _ := strings.Cut(lines.Text(), " ")
		at := filepath.Join(dir, strings.TrimPrefix(disk, "state"))
		var err error
		var found []string
		switch what {
		case "fill":
			err = os.WriteFile(filepath.Join(at, "others"), make([]byte, 16<<20), 0o600)
			if errors.Is(err, syscall.ENOSPC) {
				err = nil
			}
		case "free":
			err = os.Remove(filepath.Join(at, "others"))
		case "readonly":
			err = syscall.Mount("tmpfs", at, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, mirrorSize)
		case "writable":
			err = syscall.Mount("tmpfs", at, "tmpfs", syscall.MS_REMOUNT, mirrorSize)
		case "list":
			found, err = filesBelow(at)
		case "stop":
			err = agent.Process.Signal(syscall.SIGTERM)
			<-ended
			if err == nil && agent.ProcessState.ExitCode() != 0 {
				err = fmt.Errorf("the agent ended: %s", agent.ProcessState)
			}
		case "export":
			err = os.CopyFS(filepath.Join(filepath.Dir(dir), "export"), os.DirFS(dir))
		default:
			err = fmt.Errorf("cannot %s", what)
		}
		answer := diskAnswer{Files: found}
		select {
		case <-ended:
			answer.Ended = true
		default:
		}
		if err != nil {
			answer.Err = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			break
		}
	}
	_ = agent.Process.Kill()
	<-ended
	return true
}

// diskAnswer is the answer of the mounting process to each line.
type diskAnswer struct {
	Err   string
	Ended bool // of the agent
	Files []string
}

func mountDisk(dir, room string) error {
	return errors.Join(os.MkdirAll(dir, 0o700), syscall.Mount("tmpfs", dir, "tmpfs", 0, room), os.Chmod(dir, 0o700))
}

func filesBelow(dir string) (out []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	return out, err
}

// diskAgent is an agent on small disks.
type diskAgent struct {
	*process
	m   *crashAgent
	in  io.WriteCloser
	out *bufio.Reader
}

// startOnSmallDisks starts an agent on small disks. It returns false where a process may not mount.
func (m *crashAgent) startOnSmallDisks(path string, env ...string) (*diskAgent, bool) {
	m.t.Helper()
	k := &diskAgent{process: &process{done: make(chan struct{})}, m: m}
	k.cmd = exec.Command(os.Args[0], append([]string{path}, m.flags()...)...)
	k.cmd.Env, k.cmd.Dir, k.cmd.Stderr = append(append(slices.Clone(m.env), disksEnv+"="+filepath.Dir(m.state())), env...), m.dir, &m.log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	in, err := k.cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	k.in, k.out = in, bufio.NewReader(out)
	if err := k.cmd.Start(); err != nil {
		return m.noMounts(err)
	}
	m.t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, k.out)
		_ = k.cmd.Wait()
	})
	if _, err := fmt.Fprintln(in, "list state"); err != nil {
		return m.noMounts(err)
	}
	if _, err := k.out.Peek(1); err != nil {
		return m.noMounts(fmt.Errorf("%w: %s", err, m.log.String()))
	}
	_, err = k.out.ReadString('\n')
	return k, err == nil
}

// noDisks fails the long form of a test, which is there for this; 'make test'
// has to pass also where containers must not mount.
func (m *crashAgent) noMounts(err error) (*diskAgent, bool) {
	m.t.Helper()
	if suite.IsFull() {
		m.t.Fatalf("no mount namespace: %v", err)
	}
	m.t.Logf("no small disks on this system: %v", err)
	return nil, false
}

// do sends one line to the mounting process.
func (k *diskAgent) do(what, disk string) []string {
	k.m.t.Helper()
	a := k.try(what, disk)
	if a.Err != "" {
		k.m.t.Fatalf("%s %s: %s", what, disk, a.Err)
	}
	return a.Files
}

func (k *diskAgent) try(what, disk string) diskAnswer {
	k.m.t.Helper()
	if _, err := fmt.Fprintln(k.in, what, disk); err != nil {
		k.m.t.Fatal(err)
	}
	line, err := k.out.ReadBytes('\n')
	var a diskAnswer
	if err := errors.Join(err, json.Unmarshal(line, &a)); err != nil {
		k.m.t.Fatalf("%v: %s", err, line)
	}
	if a.Ended && what != "stop" && what != "export" {
		k.m.t.Fatal("the agent has ended by itself")
	}
	return a
}

// stop stops the agent with SIGTERM and copies its files out of the mounts.
func (k *diskAgent) stop() {
	k.m.t.Helper()
	k.do("stop", "state")
	k.do("export", "state")
	export, dir := filepath.Join(k.m.dir, "export"), filepath.Dir(k.m.state())
	if err := errors.Join(os.RemoveAll(dir), os.Rename(export, dir), os.Chmod(dir, 0o700)); err != nil {
		k.m.t.Fatal(err)
	}
}

// awaitIdle waits until the queue is empty.
func (m *crashAgent) awaitIdle() {
	m.t.Helper()
	until(m.t, "all jobs have ended in "+m.namespace, func() bool { return len(m.user.list(api.Jobs)) == 0 })
}

// What the system says of its disks.
var noSpace, readOnly = syscall.ENOSPC.Error(), syscall.EROFS.Error()

// awaitLog waits until the log has a text.
func (m *crashAgent) awaitLog(text string) {
	m.t.Helper()
	until(m.t, "the agent says: "+text, func() bool { return strings.Contains(m.log.String(), text) })
}

// pause lets an agent do something for a while.
func pause(rng *rand.Rand, most time.Duration) { <-time.After(time.Duration(rng.Int64N(int64(most)))) }

// TestFullStateDisk: the disk of the state file is full, again and again, while
// jobs come in. The agent lives on, and every job gets its result.
func TestFullStateDisk(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	path, err := failpointBinary()
	if err != nil {
		t.Fatal(err)
	}
	m := newCrashAgent(t, w, "full-state", first, few())
	flag := filepath.Join(m.dir, "full")
	k, ok := m.startOnSmallDisks(path, "LIMPET_STATE_FULL="+flag)
	if !ok {
		return
	}
	m.completesWithoutSpace(flag)
	cycles := suite.Count(2, 100)
	for range cycles {
		m.ensureJobs(m.names()...)
		pause(m.rng, 200*time.Millisecond)
		k.do("fill", "state")
		m.ensureJobs(m.names()...)
		pause(m.rng, 600*time.Millisecond)
		k.do("free", "state")
	}
	m.awaitIdle()
	k.stop()
	m.historyIncomplete = true // history makes room
	m.verify()
	hits := strings.Count(m.log.String(), noSpace)
	if hits == 0 && suite.IsFull() {
		t.Error("the disk was never full for the agent")
	}
}

// completesWithoutSpace ends a job while no transaction finds space, for longer than a
// lease lasts: the result waits, and the claim is renewed.
func (m *crashAgent) completesWithoutSpace(flag string) {
	m.t.Helper()
	m.api.Break(m.t, testenv.Fault{Path: "/namespaces/" + m.namespace + "/dashboards", Delay: 700 * time.Millisecond})
	m.ensureJobs("a")
	held := func() (owner string, claim int64) {
		for _, job := range m.user.list(api.Jobs) {
			owner = job.GetLabels()[api.LabelClaimOwner]
			claim, _ = strconv.ParseInt(job.GetLabels()[api.LabelClaim], 10, 64)
		}
		return owner, claim
	}
	owner := ""
	until(m.t, "the job is at work", func() bool {
		owner, _ = held()
		return owner != "" && strings.Contains(m.log.String(), stepped("applied"))
	})
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
	full := time.Now()
	until(m.t, "the lease is renewed for longer than it lasts", func() bool {
		now, claim := held()
		if now != owner {
			m.t.Fatalf("the job is in the hands of %q, and was in those of %q", now, owner)
		}
		return claim > full.Add(shortExpiry).UnixMilli()
	})
	if err := os.Remove(flag); err != nil {
		m.t.Fatal(err)
	}
	m.api.Break(m.t)
	m.awaitIdle()
	if got := strings.Count(m.log.String(), stepped("claimed")); got != 1 {
		m.t.Errorf("the job was claimed %d times", got)
	}
}

// TestFullMirrorDisk: the same with the disk of the mirrors. A fetch that finds
// no room fails and leaves nothing behind.
func TestFullMirrorDisk(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "full-mirrors", first, few())
	m.attempts = 2 // the rest before a third is longer than the test
	k, ok := m.startOnSmallDisks(limpetBinary(t))
	if !ok {
		return
	}
	m.ensureJobs(m.names()...)
	m.awaitIdle()
	cycles := suite.Count(2, 100)
	for cycle := range cycles {
		k.do("fill", "mirrors")
		m.ensureJobs(m.names()...)
		if cycle == 0 {
			m.awaitLog(noSpace)
		}
		pause(m.rng, 600*time.Millisecond)
		k.do("free", "mirrors")
		pause(m.rng, 300*time.Millisecond)
	}
	m.awaitIdle()
	m.ensureJobs(m.names()...)
	m.awaitIdle()
	for _, file := range k.do("list", "mirrors") {
		if strings.Contains(filepath.Base(file), "tmp") || strings.HasSuffix(file, ".lock") {
			t.Errorf("left behind: %s", file)
		}
	}
	k.stop()
	m.jobsMayFail = true // a fetch without room
	m.verify()
}

// TestReadOnlyDisks: the disks become read-only and writable again. The agent claims nothing
// meanwhile, says why, and goes on by itself. The mirrors are remounted; a file system with a file
// that is open for writing becomes read-only only by an error of its disk, so for the state file
// that is done inside of the agent.
func TestReadOnlyDisks(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	path, err := failpointBinary()
	if err != nil {
		t.Fatal(err)
	}
	m := newCrashAgent(t, w, "readonly", first, few())
	m.attempts = 2
	flag := filepath.Join(m.dir, "readonly")
	k, ok := m.startOnSmallDisks(path, "LIMPET_STATE_READONLY="+flag)
	if !ok {
		return
	}
	m.ensureJobs(m.names()...)
	m.awaitIdle()
	flips, refused := suite.Count(2, 50), 0
	for flip := range flips {
		m.ensureJobs(m.names()...)
		pause(m.rng, 100*time.Millisecond)
		if err := os.WriteFile(flag, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if k.try("readonly", "mirrors").Err == "" { // busy: a fetch is writing
			refused++
		}
		since := time.Now()
		m.ensureJobs(m.names()...)
		if flip == 0 {
			m.awaitLog(readOnly)
		}
		pause(m.rng, 600*time.Millisecond)
		m.verifyNoClaims(since)
		if err := os.Remove(flag); err != nil {
			t.Fatal(err)
		}
		k.do("writable", "mirrors")
		if m.rng.IntN(4) == 0 {
			m.awaitIdle()
		}
	}
	m.awaitIdle()
	k.stop()
	m.jobsMayFail = true
	m.verify()
}

// verifyNoClaims fails when the agent has begun to claim jobs since then, beyond those that
// its two drivers were about to claim.
func (m *crashAgent) verifyNoClaims(since time.Time) {
	m.t.Helper()
	known, claims := map[string]bool{}, 0
	for _, r := range m.api.Writes(m.t, 0) {
		if !strings.Contains(r.Path, "/namespaces/"+m.namespace+"/jobs/") || r.Method != "PUT" || r.Code >= 300 {
			continue
		}
		var job struct {
			Metadata struct{ Labels map[string]string }
		}
		if err := json.Unmarshal(r.Body, &job); err != nil {
			m.t.Fatal(err)
		}
		token := job.Metadata.Labels[api.LabelClaimOwner]
		if token != "" && !known[token] && r.At > since.UnixMilli() {
			claims++
		}
		known[token] = true
	}
	if claims > 2 {
		m.t.Errorf("%d jobs claimed while the state file could not be written", claims)
	}
}
