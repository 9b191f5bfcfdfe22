package git

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"limpet/sync/git/gittest"
)

// TestManyFiles fetches and lists a repository of 100,000 files.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	const files = 100_000
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "large.git")
	var in bytes.Buffer
	in.WriteString("commit refs/heads/main\ncommitter A <a@b> 1800000000 +0000\ndata 0\n")
	for i := range files {
		text := fmt.Sprintf(`{"uid":"d%06d","title":"Dashboard %d"}`, i, i)
		fmt.Fprintf(&in, "M 100644 inline team-%03d/d%06d.json\ndata %d\n%s\n", i%500, i, len(text), text)
	}
	gittest.Git(t, o.Bare, in.Bytes(), "fast-import", "--quiet")
	rep := fetchInChild(t, s.URL+"/large.git", 0)
	if rep.Err != "" || rep.Files != files || rep.Took > time.Minute {
		t.Errorf("%+v", rep)
	}
}
