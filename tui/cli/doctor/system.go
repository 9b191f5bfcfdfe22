package doctor

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// fileSystems are those that are risky for a state file, by their magic number. Source: statfs(2).
var fileSystems = map[int64]disk{
	unix.TMPFS_MAGIC:           {kind: "tmpfs", gone: "after a restart of the host"},
	unix.RAMFS_MAGIC:           {kind: "ramfs", gone: "after a restart of the host"},
	unix.NFS_SUPER_MAGIC:       {kind: "NFS"},
	unix.SMB2_SUPER_MAGIC:      {kind: "SMB"},
	unix.CIFS_SUPER_MAGIC:      {kind: "SMB"},
	unix.FUSE_SUPER_MAGIC:      {kind: "FUSE"},
	unix.CEPH_SUPER_MAGIC:      {kind: "Ceph"},
	unix.AFS_SUPER_MAGIC:       {kind: "AFS"},
	unix.OCFS2_SUPER_MAGIC:     {kind: "OCFS2"},
	unix.V9FS_MAGIC:            {kind: "9P"},
	unix.OVERLAYFS_SUPER_MAGIC: {kind: "an overlay", gone: "with its container"},
}

// diskOf returns the file system of a directory.
func diskOf(dir string) disk {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return disk{free: -1}
	}
	d := fileSystems[int64(s.Type)]
	d.free = int64(s.Bavail) * int64(s.Bsize)
	return d
}

// attributesQuery asks a terminal for its type (DA1); each that answers queries answers this one, with a text
// that ends with attributesEnd.
const (
	attributesQuery = "\x1b[c"
	attributesEnd   = 'c'
)

// answers reports whether a terminal answers a query in time. Known is false when it cannot be asked.
func answers(in, out *os.File, within time.Duration) (answered, known bool) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return false, false
	}
	defer term.Restore(int(in.Fd()), before)
	if _, err := out.WriteString(attributesQuery); err != nil {
		return false, false
	}
	deadline := time.Now().Add(within)
	var got []byte
	for {
		left := time.Until(deadline)
		ready := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, int(max(left, 0).Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return false, err == nil
		}
		part := make([]byte, 64)
		n, err = in.Read(part)
		if got = append(got, part[:max(n, 0)]...); bytes.Contains(got, []byte("\x1b[?")) && bytes.IndexByte(got, attributesEnd) > 0 {
			return true, true
		}
		if err != nil || left <= 0 {
			return false, err == nil
		}
	}
}
