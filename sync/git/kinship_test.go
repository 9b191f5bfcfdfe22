package git

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var kinSeed = flag.Uint64("kinship.seed", 0, "seed of TestMirrorsNeverLeadBack; 0 = another one each time")

// TestMirrorsNeverLeadBack makes a history with branches and merges, has a site at one
// commit of it, with what it has seen before or without, and a mirror at another one.
// What is taken is what git itself says comes after.
func TestMirrorsNeverLeadBack(t *testing.T) {
	t.Parallel()
	seed := *kinSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-kinship.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	p := newTwins(t, time.Hour)
	commits := []string{p.at.git("rev-parse", "HEAD")}
	var in strings.Builder
	for i := range 70 {
		fmt.Fprintf(&in, "commit refs/heads/all\nmark :%d\ncommitter Carl <carl@example.com> %d +0000\ndata 1\nx\n", i+1, 1800000000+i)
		parent := func() string {
			if at := i - 1 - min(r.IntN(4), r.IntN(8)); at >= 0 {
				return fmt.Sprintf(":%d", at+1)
			}
			return commits[0]
		}
		one := parent()
		fmt.Fprintf(&in, "from %s\n", one)
		if two := parent(); r.IntN(4) == 0 && two != one {
			fmt.Fprintf(&in, "merge %s\n", two)
		}
		fmt.Fprintf(&in, "M 100644 inline f%d.json\ndata 2\n%02d\n", i%9, i)
	}
	marks := filepath.Join(p.at.work, "marks")
	gitIn(t, p.at.bare, []byte(in.String()), "fast-import", "--quiet", "--force", "--export-marks="+marks)
	data, err := os.ReadFile(marks)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		commits = append(commits, strings.Fields(line)[1])
	}
	// All of them can be had at both, whatever main is.
	for i, c := range commits {
		gitIn(t, p.at.bare, nil, "update-ref", fmt.Sprintf("refs/keep/%d", i), c)
	}
	gitIn(t, p.copied, nil, "fetch", "-q", p.at.bare, "refs/keep/*:refs/keep/*")
	before := func(a, b string) bool {
		cmd := exec.Command("git", "merge-base", "--is-ancestor", a, b)
		cmd.Dir = p.at.bare
		return cmd.Run() == nil
	}
	rounds := 25
	taken, kept, refused, stopped := 0, 0, 0, 0
	for round := range rounds {
		site, mirror := commits[r.IntN(len(commits))], commits[r.IntN(len(commits))]
		p.m, p.r.Last = openMirrors(t, Options{Rest: time.Hour}), ""
		p.one.fails(0)
		var way, back []string
		for i := range r.IntN(3) + 1 { // what the site has seen before it came there
			at := commits[r.IntN(len(commits))]
			if i == 0 {
				at = site
			}
			way = append([]string{at}, way...)
		}
		for _, at := range way {
			gitIn(t, p.at.bare, nil, "update-ref", "refs/heads/main", at)
			p.pulled(mainBranch, at)
			back = append(back, at)
		}
		revives := false // what was pulled and taken back; what came with it may not be here
		for _, at := range back {
			revives = revives || !before(at, site) && before(at, mirror)
		}
		if r.IntN(4) == 0 { // its directory is lost
			revives = false
			p.m = openMirrors(t, Options{Rest: time.Hour})
		}
		p.one.fails(http.StatusBadGateway)
		gitIn(t, p.copied, nil, "update-ref", "refs/heads/main", mirror)
		ref, err := p.pull(mainBranch)
		told := fmt.Sprintf("round %d: site at %.7s, mirror at %.7s, pulled %.7s, via %q, %v", round, site, mirror, ref.Hash, ref.Via, err)
		switch onward := before(site, mirror); {
		case err == nil && ref.Hash == mirror && onward:
			if taken++; revives {
				t.Error(told)
			}
		case err == nil && ref.Hash == site && strings.Contains(ref.Via.Kept, "taken back"):
			stopped++
		case err == nil && ref.Hash == site && !onward && ref.Via.Kept != "":
			kept++
			if strings.Contains(ref.Via.Kept, "is behind: it has") && !before(mirror, site) {
				t.Error(told)
			}
		case KindOf(err) == Unreachable && !onward:
			refused++
			if strings.Contains(err.Error(), "it has another history") && before(mirror, site) {
				t.Error(told)
			}
		default:
			t.Error(told)
		}
	}
	if t.Logf("%d taken, %d kept, %d refused, %d stopped", taken, kept, refused, stopped); taken+kept+refused+stopped != rounds {
		t.Fail()
	}
}
