package doctor

import (
	"fmt"
	"io/fs"
	"net"
	"os"

	"limpet/sync/text"
)

// What the doctor puts right with --fix. Nothing of it loses anything, and all of it
// may be done twice.

// fix is one thing that was put right, or could not be.
type fix struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// fixed keeps what was done, and tells it.
func (p *examination) fixed(done []fix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixes = append(p.fixes, done...)
	for _, f := range done {
		p.Notef("fix: %s: was %s; now %s", text.Clean(f.What), text.Clean(f.Before), text.Clean(f.After))
	}
}

// mendRights takes from others what only the owner may have. What is everybody's on
// purpose, as /tmp is, stays so, and so does what a link leads to: that may be whose it
// will.
func mendRights(places []place) (out []fix) {
	for _, place := range places {
		if fault, _ := tooOpen(place.path, place.never); fault == "" {
			continue
		}
		info, err := os.Lstat(place.path)
		if err != nil || info.Mode()&(fs.ModeSticky|fs.ModeSymlink) != 0 {
			continue
		}
		mode := info.Mode() &^ place.never // a directory goes on to give its group to what is made in it
		after := fmt.Sprintf("mode %04o", mode.Perm())
		if err := os.Chmod(place.path, mode); err != nil {
			after = "the same: " + err.Error()
		}
		out = append(out, fix{place.path, fmt.Sprintf("mode %04o", info.Mode().Perm()), after})
	}
	return out
}

// mendSocket removes a socket that nobody listens on. Whoever calls it holds the
// state file, so that nobody is about to.
func mendSocket(path string) []fix {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil
	}
	if c, err := net.DialTimeout("unix", path, answerWithin); err == nil {
		c.Close()
		return nil
	}
	after := "removed"
	if err := os.Remove(path); err != nil {
		after = "the same: " + err.Error()
	}
	return []fix{{path, "the socket of a process that is gone", after}}
}
