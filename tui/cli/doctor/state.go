package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"limpet/state"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Checks of the state file, its disk and the daemon, and the fixes of --fix, which lose nothing and
// are idempotent.

// largeState is the size from which a state file is a warning: it is verified after each power cut,
// at about 100 MB/s.
const largeState = 1 << 30

func (p *examination) checkState(context.Context) check {
	if next, _ := command.StoreHint(p.openErr); errors.Is(p.openErr, state.ErrForeign) { // its rights are not limpet's to judge
		return failed(next, "%v", p.openErr)
	}
	for _, place := range p.places() {
		if c := place.tooOpen(); c.Found != "" {
			return c
		}
	}
	switch {
	case !p.exists && p.daemon == nil:
		return passed("%s is made at the first start", p.path)
	case p.openErr != nil:
		next, _ := command.StoreHint(p.openErr)
		next = cmp.Or(next, "limpet store check")
		if locked, ok := errors.AsType[*state.LockedError](p.openErr); ok {
			return warned(next, "%v", locked)
		}
		return failed(next, "%v", p.openErr)
	case p.report.Quarantined != "":
		return failed(command.RebuiltNext+"    # says what is there; the old file is kept", "%s", command.RebuiltText(p.report))
	}
	c := passed("%s", p.path)
	if p.info.Bytes > 0 {
		c.Found += fmt.Sprintf(", %s, %s in the history", text.Size(p.info.Bytes), text.Plural(p.info.History, "job"))
	}
	if p.report.Unclean {
		c.Found += "; it was not closed last time, and is sound"
	}
	if p.info.Bytes > largeState {
		return c.but("limpet history prune --older-than 7d", "")
	}
	return c
}

// place is a file or directory with the rights that only its owner may have.
type place struct {
	path  string
	never fs.FileMode
}

// places are those of the state file, its key and their directory.
func (p *examination) places() []place {
	return []place{{filepath.Dir(p.path), 0o022}, {p.path, 0o077}, {p.path + ".key", 0o077}}
}

// tooOpen returns a failure when a file is open to others, with the fix; an empty one when it is
// not, or does not exist.
func (p place) tooOpen() check {
	info, err := os.Stat(p.path)
	if err != nil || info.Mode().Perm()&p.never == 0 {
		return check{}
	}
	next := fmt.Sprintf("chmod %o %s", info.Mode().Perm()&^p.never, text.ShellWord(p.path))
	if info.Mode()&fs.ModeSticky != 0 { // it is shared on purpose
		next = otherState
	}
	return failed(next, "%s is open to others (mode %04o)", p.path, info.Mode().Perm())
}

// otherState is the command with a state file on a suitable disk.
const otherState = "limpet --state /var/lib/limpet/limpet.db"

// fix is one fix, or a failed one.
type fix struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// record records a fix whose operation ended with err, and prints it.
func (p *examination) record(path, before, after string, err error) {
	if err != nil {
		after = "the same: " + err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixes = append(p.fixes, fix{path, before, after})
	p.env.Notef("fix: %s: was %s; now %s", text.Clean(path), text.Clean(before), text.Clean(after))
}

// fixPermissions removes the rights of others. Shared directories such as /tmp are left alone, and
// so are the targets of links, which may belong to others.
func (p *examination) fixPermissions(places ...place) {
	for _, place := range places {
		info, err := os.Lstat(place.path)
		if err != nil || info.Mode()&(fs.ModeSticky|fs.ModeSymlink) != 0 || info.Mode().Perm()&place.never == 0 {
			continue
		}
		mode := info.Mode() &^ place.never // keeps setgid of a directory
		p.record(place.path, fmt.Sprintf("mode %04o", info.Mode().Perm()), fmt.Sprintf("mode %04o", mode.Perm()), os.Chmod(place.path, mode))
	}
}

// fixSocket removes a socket without a listener. The caller holds the state file, so that no agent
// is about to listen.
func (p *examination) fixSocket(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return
	}
	p.record(path, "the socket of a process that is gone", "removed", os.Remove(path))
}

const (
	// lowDisk is the free space below which a state file may not be able to grow: bbolt doubles its
	// file.
	lowDisk = 256 << 20
	// noDisk is too little for any mirror.
	noDisk = 32 << 20
)

func (p *examination) checkDisk(context.Context) check {
	dir := filepath.Dir(p.path)
	for _, err := os.Stat(dir); err != nil && dir != filepath.Dir(dir); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return skipped("the free space of this file system is not known")
	}
	return judgeDisk(dir, int64(s.Bavail)*int64(s.Bsize), riskOf(&s))
}

const (
	volatile = ": all is gone after a restart"
	remote   = ": locks and power cuts are another matter there"
)

// judgeDisk judges the space that is free to this user, and the kind of the file system, "" for an
// ordinary one.
func judgeDisk(dir string, free int64, kind string) check {
	c, look := passed("%s free at %s", text.Size(free), dir), "df -h "+text.ShellWord(dir)
	switch {
	case free < noDisk:
		return failed(look, "%s", c.Found)
	case free < lowDisk:
		return c.but(look, "")
	case kind != "":
		return c.but(otherState, ", "+kind)
	}
	return c
}

const (
	// syncWrites is the number of timed page writes; a claim may meet the slowest of a hundred.
	syncWrites = 100
	// syncFor bounds them on a slow disk.
	syncFor = 2 * time.Second
	// slowSync is the write time from which on the disk limits the throughput: each job has about ten
	// writes.
	slowSync = 100 * time.Millisecond
)

// checkWrites times durable writes. Claims, renewals and progress marks wait for one each.
func (p *examination) checkWrites(ctx context.Context) check {
	if !p.exists || p.env.Flags.ReadOnly {
		return skipped("nothing is written here: there is no state file, or --read-only")
	}
	dir := filepath.Dir(p.path)
	took, err := timeWrites(ctx, dir, syncWrites, syncFor)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return skipped("this user may not write to " + dir)
	case errors.Is(err, syscall.EROFS):
		return failed("limpet --state FILE    # on a disk that can be written to", "%s is on a file system that is read-only", dir)
	case err != nil:
		return failed("df -h "+text.ShellWord(dir), "%v", err)
	}
	return judgeWrites(took, p.env.Flags.LeaseRenewalInterval)
}

// timeWrites writes pages to an unlinked file in dir and returns the sorted durations of write and
// fsync. It stops early when ctx or most is over.
func timeWrites(ctx context.Context, dir string, n int, most time.Duration) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".limpet-doctor-*.tmp")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The file is unlinked at once, so that nothing is left behind.
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	page, began := make([]byte, 4096), time.Now()
	for len(took) < n && ctx.Err() == nil && (len(took) == 0 || time.Since(began) < most) {
		at := time.Now()
		if _, err = f.Write(page); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return took, nil
}

// judgeWrites judges the sorted write times by the renewal period of leases.
func judgeWrites(took []time.Duration, renew time.Duration) check {
	if len(took) == 0 {
		return skipped("there was no time for it")
	}
	middle, worst := took[len(took)/2], took[(len(took)*99-1)/100]
	c := passed("commit to disk: median %.1fms, p99 %.1fms", middle.Seconds()*1000, worst.Seconds()*1000)
	switch {
	case renew > 0 && worst >= renew/3:
		return failed("limpet --state FILE    # on another disk, or with a longer --claim-expiry and --lease-renewal-interval",
			"%s: leases may be lost, which are renewed every %s", c.Found, renew)
	case worst >= slowSync:
		return c.but("limpet --state FILE    # on another disk", ": each job waits for about ten of them")
	}
	return c
}

func (p *examination) checkDaemon(context.Context) check {
	if p.unresponsive != nil {
		return failed(command.UnresponsiveHint(p.unresponsive), "%v", p.unresponsive)
	}
	switch {
	case p.daemon == nil && p.exists && p.openErr == nil:
		return failed("limpet --daemon", "no agent holds the state file")
	case p.daemon == nil: // there is none to hold, or checkState says why it does not open
		return warned("limpet --daemon", "none answers on the socket beside the state file")
	}
	h := p.daemon.Hello()
	c := passed("limpet %s, pid %d, up %s", h.Version, h.PID, text.Age(p.now.Sub(h.Started)))
	switch {
	case p.snap == nil:
		return failed("limpet status", "%s, but it does not say what it does", c.Found)
	case h.Version != command.Version:
		return c.but("limpet version    # the daemon is restarted to become this one", ", and this is "+command.Version)
	case p.snap.Problem != "":
		return failed("limpet status", "%s: %s", c.Found, p.snap.Problem)
	case !p.snap.Agent.Draining.IsZero():
		return c.but("limpet drain --off", ", drained: it claims nothing")
	}
	return c
}
