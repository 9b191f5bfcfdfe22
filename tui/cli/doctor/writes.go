package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"limpet/tui/cli/command"
)

const (
	// syncWrites is how many writes of one page are timed; the slowest of a hundred
	// is what a claim may meet.
	syncWrites = 100
	// syncFor bounds them on a disk that is slow.
	syncFor = 2 * time.Second
	// slowSync is a time from which on the disk, and not the network, says how many
	// jobs a minute has: each has about ten writes.
	slowSync = 100 * time.Millisecond
)

// checkWrites times how long the disk takes until what was written is safe. A claim,
// a renewal and a mark of progress wait for it each time.
func (p *examination) checkWrites(ctx context.Context) check {
	c := check{"writes", checkSkipped, "", ""}
	if !p.exists || p.Flags.ReadOnly {
		c.Found = "nothing is written here: there is no state file, or --read-only"
		return c
	}
	took, err := timeWrites(ctx, filepath.Dir(p.path), syncWrites, syncFor)
	switch {
	case errors.Is(err, fs.ErrPermission):
		c.Found = "this user may not write to " + filepath.Dir(p.path)
		return c
	case errors.Is(err, syscall.EROFS):
		c.Result, c.Found, c.Next = checkFail, filepath.Dir(p.path)+" is on a file system that is read-only", "limpet --state FILE    # on a disk that can be written to"
		return c
	case err != nil:
		c.Result, c.Found, c.Next = checkFail, err.Error(), "df -h "+command.ShellWord(filepath.Dir(p.path))
		return c
	}
	return writesText(c, took, p.Flags.LeaseRenewalInterval)
}

// timeWrites writes pages to a file that nobody sees, in dir, and returns how long
// each took until it was safe, sorted. It stops early when ctx or most is over.
func timeWrites(ctx context.Context, dir string, n int, most time.Duration) ([]time.Duration, error) {
	f, err := os.CreateTemp(dir, ".limpet-doctor-*")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// It has no name from now on, so that nothing is left whatever happens.
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	page, began := make([]byte, 4096), time.Now()
	var took []time.Duration
	for len(took) < n && ctx.Err() == nil && (len(took) == 0 || time.Since(began) < most) {
		at := time.Now()
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return took, nil
}

// writesText judges the times of writes, which are sorted, by the period in which
// leases are renewed.
func writesText(c check, took []time.Duration, renew time.Duration) check {
	if len(took) == 0 {
		c.Result, c.Found = checkSkipped, "there was no time for it"
		return c
	}
	middle, worst := took[len(took)/2], took[(len(took)*99-1)/100]
	c.Result = checkOK
	c.Found = fmt.Sprintf("safe on the disk after %s, the slowest in a hundred after %s", brief(middle), brief(worst))
	switch {
	case renew > 0 && worst >= renew/3:
		c.Result, c.Next = checkFail, "limpet --state FILE    # on another disk, or with a longer --claim-expiry and --lease-renewal-interval"
		c.Found += ": leases may be lost, which are renewed every " + renew.String()
	case worst >= slowSync:
		c.Result, c.Next = checkWarn, "limpet --state FILE    # on another disk"
		c.Found += ": each job waits for about ten of them"
	}
	return c
}

// brief is a time to read, in two or three digits, and in ASCII: below a millisecond too.
func brief(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.2fms", d.Seconds()*1000)
	}
	return d.Round(100 * time.Microsecond).String()
}
