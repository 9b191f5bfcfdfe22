package e2e

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv/suite"
)

// maxBinary is the size that the stripped static binary may have, in bytes.
const maxBinary = 40 << 20

// TestBinaryIsStaticAndSmall looks at the binary as a release builds it.
func TestBinaryIsStaticAndSmall(t *testing.T) {
	t.Parallel()
	path := limpetBinary(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > maxBinary {
		t.Errorf("the binary has %d bytes, more than %d", info.Size(), maxBinary)
	}
	build, err := buildinfo.ReadFile(path)
	if err != nil || !slices.Contains(build.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"}) {
		t.Errorf("the binary was not built without cgo: %v %v", build, err)
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the binary needs the libraries %q: %v", libraries, err)
	}
}

// TestTerminalBudgets: a dashboard at rest sends little and takes next to no processor time, and
// answers a key at once. The limits of time hold on a machine that does nothing else (-figures);
// beside other tests they are wider.
func TestTerminalBudgets(t *testing.T) {
	suite.Full(t)
	const (
		restBytes = 60                     // a second: the clock
		restCPU   = 0.005                  // of a core
		keyWithin = 100 * time.Millisecond // to the changed screen, median
	)
	wider := size(10, 1)
	h := newHome(t)
	for i := range 20 {
		h.must(t, 0, "repo", "create", fmt.Sprintf("repo-%02d", i), "--url", "https://127.0.0.1:1/x.git", "--disabled")
	}
	h.daemon(t, "--controllers", "off", "--log-level", "error")
	tt := h.terminal(t)
	tt.showsNow(t, "repo-00")
	<-time.After(2 * time.Second) // the start
	rest := time.Duration(size(5, 60)) * time.Second
	bytes, before := tt.Bytes(), readUsage(t, tt.Process.Pid)
	<-time.After(rest)
	after := readUsage(t, tt.Process.Pid)
	sent, cpu := float64(tt.Bytes()-bytes)/rest.Seconds(), (after.cpu-before.cpu).Seconds()/rest.Seconds()
	if sent > restBytes || cpu > restCPU*float64(wider) {
		t.Errorf("at rest: %.0f B/s, %.2f %% of a core", sent, 100*cpu)
	}
	tt.Press(t, "3")
	tt.showsNow(t, "repo-00")
	tt.Press(t, "G")
	tt.showsNow(t, "repo-19")
	var took []time.Duration
	for i := range size(20, 500) {
		screen := tt.Text()
		tt.Press(t, []string{"j", "k"}[i%2])
		took = append(took, tt.Await(t, "the cursor moves", callTimeout, func(s string) bool { return s != screen+"\n" && s != screen }))
		<-time.After(20 * time.Millisecond)
	}
	if median(took) > keyWithin*time.Duration(wider) {
		t.Errorf("a key is answered after %s", median(took))
	}
	t.Logf("at rest %.0f B/s, %.2f %% of a core; %s; a key is answered after %s, at most %s", sent, 100*cpu, after, median(took),
		quantile(took, 1))
	tt.Press(t, "q")
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// usage is the memory of a process in KiB, and its processor time.
type usage struct {
	peak, rss, anon, file int
	cpu                   time.Duration
}

func (w usage) String() string {
	mib := func(kib int) string { return fmt.Sprintf("%.1f", float64(kib)/1024) }
	return fmt.Sprintf("VmHWM %s MiB, VmRSS %s (RssAnon %s, RssFile %s), %s of processor time",
		mib(w.peak), mib(w.rss), mib(w.anon), mib(w.file), w.cpu)
}

func readUsage(t *testing.T, pid int) usage {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	figure := func(name string) int {
		_, rest, _ := strings.Cut(string(text), name+":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			t.Fatalf("no %s in %s", name, text)
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w := usage{peak: figure("VmHWM"), rss: figure("VmRSS"), anon: figure("RssAnon"), file: figure("RssFile")}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	for _, n := range []int{11, 12} { // utime and stime in hundredths of a second
		ticks, err := strconv.Atoi(string(bytes.Fields(rest)[n]))
		if err != nil {
			t.Fatal(err)
		}
		w.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	return w
}
