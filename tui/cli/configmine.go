package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// A config file says where tokens go, so one that is there is taken as it is, or refused
// with what is wrong with it; it is never passed over.

// unreadConfig is why a config file could not be read.
func unreadConfig(path string, err error) error {
	info, unseen := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return usage("run it as the user that the file belongs to, as with sudo -u USER; or give another: --config FILE", "read config file: %w", err)
	case unseen == nil && info.IsDir():
		return usage("give a file: --config FILE", "config file %s is a directory", path)
	case isLink(path):
		return usage("ls -l "+path+"    # says where it leads", "config file %s is a link that leads to no file", path)
	}
	return usage("limpet config path    # one that is looked for", "read config file: %w", err)
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSymlink
}

// privately is the command that makes a file readable for the user of this process alone.
func privately(path string) string {
	if info, err := os.Stat(path); err == nil && os.Geteuid() != 0 {
		if owner, known := info.Sys().(*syscall.Stat_t); known && int(owner.Uid) != os.Geteuid() {
			return fmt.Sprintf("sudo chown %d %s && sudo chmod 600 %s", os.Geteuid(), shellWord(path), shellWord(path))
		}
	}
	return "chmod 600 " + shellWord(path)
}

// looseConfig refuses a config file that anybody may write to, or the group of somebody
// who is neither root nor the user of this process.
func looseConfig(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil // it has been read, and is gone
	}
	mode, me := info.Mode().Perm(), os.Geteuid()
	owner, known := info.Sys().(*syscall.Stat_t)
	strange := known && owner.Uid != 0 && int(owner.Uid) != me
	who, next := "everybody", "chmod o-w "+shellWord(path)
	switch {
	case mode&0o002 != 0:
	case mode&0o020 != 0 && strange:
		who, next = fmt.Sprintf("the group of user %d, to whom it belongs", owner.Uid), "chmod go-w "+shellWord(path)
	default:
		return nil
	}
	if me != 0 && known && int(owner.Uid) != me {
		next = "sudo " + next
	}
	return usage(next, "config file %s can be written by %s (mode %04o), and it says where tokens go", path, who, mode)
}
