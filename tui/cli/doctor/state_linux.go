package doctor

import "golang.org/x/sys/unix"

// fileSystems are those that are risky for a state file, by their magic number. Source: statfs(2).
var fileSystems = map[int64]string{
	unix.TMPFS_MAGIC: "tmpfs" + volatile, unix.RAMFS_MAGIC: "ramfs" + volatile, unix.OVERLAYFS_SUPER_MAGIC: "an overlay" + volatile,
	unix.NFS_SUPER_MAGIC: "NFS" + remote, unix.SMB2_SUPER_MAGIC: "SMB" + remote, unix.CIFS_SUPER_MAGIC: "SMB" + remote,
	unix.FUSE_SUPER_MAGIC: "FUSE" + remote, unix.CEPH_SUPER_MAGIC: "Ceph" + remote, unix.AFS_SUPER_MAGIC: "AFS" + remote,
	unix.OCFS2_SUPER_MAGIC: "OCFS2" + remote, unix.V9FS_MAGIC: "9P" + remote,
}

func riskOf(s *unix.Statfs_t) string { return fileSystems[int64(s.Type)] }
