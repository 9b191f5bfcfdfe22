package doctor

import "golang.org/x/sys/unix"

// fileSystems are those that are risky for a state file. Source: statfs(2) of macOS.
var fileSystems = map[string]string{"nfs": "NFS" + remote, "smbfs": "SMB" + remote, "webdav": "WebDAV" + remote, "tmpfs": "tmpfs" + volatile}

func riskOf(s *unix.Statfs_t) string { return fileSystems[unix.ByteSliceToString(s.Fstypename[:])] }
