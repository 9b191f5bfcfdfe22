package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

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
