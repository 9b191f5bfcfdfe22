package cli

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"limpet/sync/auth"
	"limpet/sync/signature"
	"limpet/sync/view"
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
func (p *patient) fixed(done []fix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixes = append(p.fixes, done...)
	for _, f := range done {
		p.note("fix: %s: was %s; now %s", view.Clean(f.What), view.Clean(f.Before), view.Clean(f.After))
	}
}

// mendRights takes from others what only the owner may have. What is everybody's on
// purpose, as /tmp is, stays so.
func mendRights(places []place) (out []fix) {
	for _, place := range places {
		if fault, _ := tooOpen(place.path, place.never); fault == "" {
			continue
		}
		info, err := os.Stat(place.path)
		if err != nil || info.Mode()&fs.ModeSticky != 0 {
			continue
		}
		mode := info.Mode().Perm() &^ place.never
		after := fmt.Sprintf("mode %04o", mode)
		if err := os.Chmod(place.path, mode); err != nil {
			after = "the same: " + err.Error()
		}
		out = append(out, fix{place.path, fmt.Sprintf("mode %04o", info.Mode().Perm()), after})
	}
	return out
}

// mendCredentials does the same for the files of a credentials directory that are
// refused for their rights.
func mendCredentials(ctx context.Context, dir string) (out []fix) {
	var places []place
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil || len(places) >= mostCredentials {
			return fs.SkipAll // the check after it says what is wrong
		}
		if !d.Type().IsRegular() || strings.HasPrefix(d.Name(), "..") {
			return nil
		}
		read, never := auth.ReadPrivate, fs.FileMode(0o077)
		if publicKeys(d.Name()) {
			read, never = auth.ReadPublic, 0o022
		}
		if _, err := read(path); err != nil {
			places = append(places, place{path, never})
		}
		return nil
	})
	return mendRights(places)
}

// publicKeys says that a file of a credentials directory holds no secret.
func publicKeys(name string) bool {
	return signature.IsKeys(name) || strings.HasSuffix(name, "_"+signature.AllowedSigners)
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
