package doctor

import (
	"fmt"
	"io/fs"
	"net"
	"os"

	"limpet/sync/text"
)

// Fixes of --fix. They lose nothing and are idempotent.

// fix is one fix, or a failed one.
type fix struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// recordFixes records fixes and prints them.
func (p *examination) recordFixes(done []fix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixes = append(p.fixes, done...)
	for _, f := range done {
		p.Notef("fix: %s: was %s; now %s", text.Clean(f.What), text.Clean(f.Before), text.Clean(f.After))
	}
}

// fixPermissions removes the rights of others. Shared directories such as /tmp are left alone, and so are the
// targets of links, which may belong to others.
func fixPermissions(places []place) (out []fix) {
	for _, place := range places {
		if fault, _ := tooOpen(place.path, place.never); fault == "" {
			continue
		}
		info, err := os.Lstat(place.path)
		if err != nil || info.Mode()&(fs.ModeSticky|fs.ModeSymlink) != 0 {
			continue
		}
		mode := info.Mode() &^ place.never // keeps setgid of a directory
		after := fmt.Sprintf("mode %04o", mode.Perm())
		if err := os.Chmod(place.path, mode); err != nil {
			after = "the same: " + err.Error()
		}
		out = append(out, fix{place.path, fmt.Sprintf("mode %04o", info.Mode().Perm()), after})
	}
	return out
}

// fixSocket removes a socket without a listener. The caller holds the state file, so that no agent is about
// to listen.
func fixSocket(path string) []fix {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil
	}
	if c, err := net.DialTimeout("unix", path, answerTimeout); err == nil {
		c.Close()
		return nil
	}
	after := "removed"
	if err := os.Remove(path); err != nil {
		after = "the same: " + err.Error()
	}
	return []fix{{path, "the socket of a process that is gone", after}}
}
