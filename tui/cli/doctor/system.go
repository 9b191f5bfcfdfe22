package doctor

import "golang.org/x/sys/unix"

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
