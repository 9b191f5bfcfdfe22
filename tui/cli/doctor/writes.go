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
	// syncWrites is the number of timed page writes; a claim may meet the slowest of a hundred.
	syncWrites = 100
	// syncFor bounds them on a slow disk.
	syncFor = 2 * time.Second
	// slowSync is the write time from which on the disk limits the throughput: each job has about ten writes.
	slowSync = 100 * time.Millisecond
)

// checkWrites times durable writes. Claims, renewals and progress marks wait for one each.
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

// timeWrites writes pages to an unlinked file in dir and returns the sorted durations of write and fsync. It
// stops early when ctx or most is over.
func timeWrites(ctx context.Context, dir string, n int, most time.Duration) ([]time.Duration, error) {
	f, err := os.CreateTemp(dir, ".limpet-doctor-*")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The file is unlinked at once, so that nothing is left behind.
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

// writesText judges the sorted write times by the renewal period of leases.
func writesText(c check, took []time.Duration, renew time.Duration) check {
	if len(took) == 0 {
		c.Result, c.Found = checkSkipped, "there was no time for it"
		return c
	}
	middle, worst := took[len(took)/2], took[(len(took)*99-1)/100]
	c.Result = checkOK
	c.Found = fmt.Sprintf("safe on the disk after %s, the slowest in a hundred after %s", durationText(middle), durationText(worst))
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

// durationText formats a duration with two or three digits, in ASCII.
func durationText(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.2fms", d.Seconds()*1000)
	}
	return d.Round(100 * time.Microsecond).String()
}
