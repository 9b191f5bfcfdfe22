package dependency

import (
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// local are the file systems whose changes are all made by this kernel, as statfs(2)
// numbers them. Those of networks, of FUSE and of virtual machines change unseen. The
// last two are bcachefs and ZFS.
var local = []uint32{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1,
	0xca451a4e, 0x2fc12fc1}

// tells says why the kernel would not tell of all changes in a directory, nil that it
// does.
func tells(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if kind := uint32(st.Type); !slices.Contains(local, kind) {
		return fmt.Errorf("file system of type %#x", kind)
	}
	return nil
}
