//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package state

import "os"

// tryLock has nothing to lock with here; bbolt's own lock keeps a second process away, except while the file is set
// aside or replaced.
func tryLock(*os.File) (bool, error) { return true, nil }

// ignorableDirSync: directories cannot be synced here.
func ignorableDirSync(error) bool { return true }
