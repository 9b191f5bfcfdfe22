package kube

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Reloaded is a value made of files, which are read again when one of them changes. While
// they cannot be used, the former value is, and the fault is logged once.
type Reloaded[T any] struct {
	Paths []string
	Read  func() (T, error)
	Log   *slog.Logger

	mu    sync.Mutex // guards the fields below
	stamp string     // of the files that were tried last, good or bad
	value T
	known bool
}

// Get returns the value. It returns an error only while there has never been one.
func (r *Reloaded[T]) Get() (T, error) { return r.get(false) }

func (r *Reloaded[T]) get(again bool) (T, error) {
	stamps := make([]string, len(r.Paths))
	for i, path := range r.Paths {
		stamps[i] = fileStamp(path)
	}
	stamp := strings.Join(stamps, "|")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known && stamp == r.stamp && !again {
		return r.value, nil
	}
	value, err := r.Read()
	switch {
	case err == nil:
		r.value, r.known = value, true
	case !r.known:
		return value, err
	case stamp != r.stamp:
		r.Log.Warn("file unusable, keeping the former one", "files", r.Paths, "err", err)
	}
	r.stamp = stamp
	return r.value, nil
}

// fileStamp identifies the state of a file without reading it. Files that are replaced
// by rename, as secret mounts are, change in all parts of it.
func fileStamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	var inode uint64
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%d %d %d", info.Size(), info.ModTime().UnixNano(), inode)
}
