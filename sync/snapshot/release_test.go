package snapshot

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// rssFile returns how much of files this process has mapped, in KiB.
func rssFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReleaseMemoryUnmapsTheProgram(t *testing.T) {
	before := rssFile(t)
	releaseMemory()
	if after := rssFile(t); after > before*3/4 {
		t.Errorf("%d KiB of files are mapped after the release, %d before", after, before)
	}
}
