package worker

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/testenv"
)

// slowGit is Git over a link on which each answer takes a while, and a branch that moves
// on between its look-up and the first fetch.
type slowGit struct {
	Git
	moved atomic.Bool
}

const slow = 3 * time.Second / 100

func (g *slowGit) Resolve(ctx context.Context, r git.Remote, sel gitref.Selector) (git.Ref, error) {
	time.Sleep(slow)
	return g.Git.Resolve(ctx, r, sel)
}

func (g *slowGit) Fetch(ctx context.Context, r git.Remote, ref git.Ref) (git.Stats, error) {
	time.Sleep(slow)
	if !g.moved.Swap(true) {
		return git.Stats{}, &git.Error{Kind: git.Moved, Err: errors.New("it has moved on")}
	}
	return g.Git.Fetch(ctx, r, ref)
}

// TestPullTellsOfItself: the record of a pull has what the commit says of itself, and how
// long each part took; one with nothing to do fetches no commit.
func TestPullTellsOfItself(t *testing.T) {
	onBoth(t, func(t *testing.T, server string) {
		r := newRig(t, server, func(o *PullOptions) { o.Git = &slowGit{Git: o.Git} })
		r.repository(nil, nil)
		r.commit("a/cpu.json", board("cpu", "CPU"))
		named := func(record state.Record) (out []string) {
			for _, s := range record.Steps {
				if word, _, _ := strings.Cut(s.Text, " "); word == "look" || word == "fetch" {
					out = append(out, s.Text)
				}
			}
			return out
		}
		began := time.Now()
		record, _ := r.pull(true, nil)
		whole := time.Since(began).Seconds()
		if c := record.Commit; c == nil || c.Subject != r.last("%s") || c.Author != r.last("%an") || strconv.FormatInt(c.At.Unix(), 10) != r.last("%at") {
			t.Errorf("commit %+v, want %s", c, r.last("%s by %an, %at"))
		}
		all := 0.0
		for _, s := range record.Steps {
			all += s.Seconds
		}
		if all > whole {
			t.Errorf("%+v take %.3f s, all of it %.3f s", record.Steps, all, whole)
		}
		look, fetch := "look up branch:"+testenv.Branch, "fetch "+short(record.RefTo)
		if got := named(record); len(got) != 4 || got[0] != look || got[1] != fetch || got[2] != look || !strings.HasPrefix(got[3], fetch+", ") || !strings.HasSuffix(got[3], " B") {
			t.Errorf("steps %q", got)
		}
		if record.Created.IsZero() || record.Created.After(record.Finished.Add(time.Second)) {
			t.Errorf("created %s, finished %s", record.Created, record.Finished)
		}
		if record, _ = r.pull(true, nil); record.Commit != nil || !slices.Equal(named(record), []string{look}) {
			t.Errorf("with nothing to do: %+v", record)
		}
	})
}

// TestPullOfAnOddDate: who writes a commit writes any date into it; its pull ends and is
// told all the same.
func TestPullOfAnOddDate(t *testing.T) {
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	r.commit("a/cpu.json", board("cpu", "CPU"))
	for _, odd := range []string{"1700000000 +2400", "1700000000 +0099", "253402300799 -2359", "400000000000 +0000", "99999999999999999999 +0000", "yesterday", ""} {
		lines := strings.SplitAfter(r.repo.Git(t, "cat-file", "commit", r.repo.Head(t)), "\n")
		for i, l := range lines {
			if strings.HasPrefix(l, "author ") {
				lines[i] = "author Ops <ops@example.com> " + odd + "\n"
			}
		}
		file := filepath.Join(t.TempDir(), "commit")
		if err := os.WriteFile(file, []byte(strings.Join(lines, "")+"\n"+odd), 0o600); err != nil {
			t.Fatal(err)
		}
		r.repo.Git(t, "update-ref", "refs/heads/"+testenv.Branch, strings.TrimSpace(r.repo.Git(t, "hash-object", "--literally", "-t", "commit", "-w", file)))
		record, _ := r.pull(true, nil)
		if record.State != "success" || record.Commit == nil || record.RefTo != r.repo.Head(t) {
			t.Errorf("%q: %+v", odd, record)
		}
		if _, err := json.Marshal(record); err != nil {
			t.Errorf("%q: %v", odd, err)
		}
	}
}
