package git

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
)

// A disk that is full ends the fetch cleanly; the mirror stays. The limit that
// stands for it hits every file of a process, also those that the test runner
// has open, so the test proper runs in a child.
func TestFetchOnFullDisk(t *testing.T) {
	t.Parallel()
	const inChild = "LIMPET_TEST_FULL_DISK"
	if os.Getenv(inChild) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFetchOnFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), inChild+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: TestFetchOnFullDisk")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	_, o, m, r, ref, files := site(t, Options{})
	before := maps.Clone(files)
	files["big.json"] = gittest.Dashboard("big", 1, 4000)
	o.Commit("two", files)
	next, err := m.Resolve(t.Context(), r, gitref.Branch(""))
	if err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	// A limit of file sizes gives the same error at the same places: EFBIG in
	// place of ENOSPC.
	small := old
	small.Cur = 8 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	_, err = m.Fetch(t.Context(), r, next)
	if serr := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); serr != nil {
		t.Fatal(serr)
	}
	gittest.ErrorIs(t, err, Unknown, "too large")
	if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, before) {
		t.Fatal("content differs")
	}
	fsck(t, m, r)
	if _, err := m.Fetch(t.Context(), r, next); err != nil {
		t.Fatal(err)
	}
	fsck(t, m, r)
}
