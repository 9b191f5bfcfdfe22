package auth

import (
	"fmt"
	"io/fs"
	"syscall"
)

// checkPrivate allows what only the owner may read, and group-readable files
// of root: systemd's credentials and Kubernetes' mounts with fsGroup are so.
func checkPrivate(name string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	rootOwned := false
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		rootOwned = st.Uid == 0
	}
	if mode&0o007 == 0 && (mode&0o070 == 0 || rootOwned && mode&0o070 == 0o040) {
		return nil
	}
	return fmt.Errorf("%s has mode %04o and may be read by others; run: chmod 600 on it", name, mode)
}

// checkOwned refuses what others than the owner may write to.
func checkOwned(name string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s has mode %04o and may be written to by others; run: chmod go-w on it", name, mode)
	}
	return nil
}
