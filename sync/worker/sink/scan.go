package sink

import (
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"limpet/sync/api/repopath"
)

// stamp is what changes with the content of a file, as in the index of Git.
type stamp struct {
	MTime, CTime int64 // ns
	Inode        uint64
}

// inode is what the disk says of a file or directory.
type inode struct {
	stamp
	size     int64
	mode     uint32
	uid, gid uint32
}

func inodeOf(st *unix.Stat_t) inode {
	return inode{stamp{st.Mtim.Nano(), st.Ctim.Nano(), uint64(st.Ino)}, int64(st.Size), uint32(st.Mode), st.Uid, st.Gid}
}

// granularity is how long two changes may have the same time: a tick of a slow kernel.
const granularity = 20 * time.Millisecond

// trusted returns the stamp of a file for a manifest that is written at now, without the times of a
// file that has just been written: a later change may have the same.
func (s stamp) trusted(now time.Time) stamp {
	if s.MTime > now.Add(-granularity).UnixNano() {
		return stamp{Inode: s.Inode}
	}
	return s
}

// is reports whether a file has the type, the size and the mode of one of the tree.
func (i inode) is(size int64, exec bool) bool {
	return i.mode&unix.S_IFMT == unix.S_IFREG && i.size == size && (i.mode&unix.S_IXUSR != 0) == exec
}

// listing is what is in a directory.
type listing struct {
	files map[string]inode // whatever is no directory
	dirs  map[string]inode // "." is the directory itself
	empty bool             // there is a directory without files
}

// scan looks through a directory, the manifest left out. It follows no link.
func scan(root *os.Root, files int) (*listing, error) {
	t := &listing{files: make(map[string]inode, files), dirs: map[string]inode{}}
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(dir.Fd()), &st) }); err != nil {
		dir.Close()
		return nil, err
	}
	t.dirs["."] = inodeOf(&st)
	_, err = t.add(dir, "")
	return t, err
}

// add adds what is in a directory, which it closes, and returns the number of files.
func (t *listing) add(dir *os.File, prefix string) (files int, err error) {
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	fd := int(dir.Fd())
	for _, name := range names {
		var st unix.Stat_t
		err := retry(func() error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return files, &fs.PathError{Op: "stat", Path: prefix + name, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			t.files[prefix+name] = inodeOf(&st)
			files++
			continue
		}
		if prefix+name == manifestDir {
			continue
		}
		below := -1
		err = retry(func() (err error) {
			below, err = unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			return err
		})
		if err != nil {
			return files, &fs.PathError{Op: "open", Path: prefix + name, Err: err}
		}
		t.dirs[prefix+name] = inodeOf(&st)
		n, err := t.add(os.NewFile(uintptr(below), name), prefix+name+"/")
		if err != nil {
			return files, err
		}
		t.empty = t.empty || n == 0
		files += n
	}
	return files, nil
}

// retry repeats a system call that a signal has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// Check compares the directory with its manifest, by what the disk says of the files: the content
// of those that may have changed is read. It returns the commit of the directory and its source as
// it was given to Plan. The error says why it is not what was written for owner: a *ForeignError
// where it has another one. It takes no lock and changes nothing.
func Check(t Target, owner string) (commit, source string, err error) {
	root, err := openPrefix(t.prefix)
	if err != nil {
		return "", "", err
	}
	defer root.Close()
	if info, err := root.Lstat(t.rel); err != nil || !info.IsDir() {
		return "", "", cmp.Or(err, fmt.Errorf("%s is not a directory", t))
	}
	dir, err := root.OpenRoot(t.rel)
	if err != nil {
		return "", "", fmt.Errorf("open %s: %w", t, err)
	}
	defer dir.Close()
	m, err := readManifest(dir)
	switch {
	case err != nil:
		return "", "", err
	case m == nil:
		return "", "", fmt.Errorf("%s has no manifest", t)
	case m.Repository != owner:
		return "", "", foreign(t, m.Repository)
	}
	return m.Commit, m.Source, m.check(dir)
}

// check returns an error for a file of the manifest that is gone or another one.
func (m *manifest) check(dir *os.Root) error {
	if err := m.load(); err != nil {
		return err
	}
	here, err := scan(dir, len(m.files))
	if err != nil {
		return err
	}
	for name, e := range m.files {
		found, there := here.files[name]
		if !there {
			return &fs.PathError{Op: "stat", Path: repopath.Quote(name), Err: fs.ErrNotExist}
		}
		same := found.is(e.size, e.exec)
		if e.at.CTime == 0 && e.at.MTime != 0 { // of an earlier version
			e.at.CTime, e.at.Inode = found.CTime, found.Inode
		}
		if same && e.at != found.stamp {
			if same, err = holds(dir, e.file(name)); err != nil {
				return err
			}
		}
		if !same {
			return fmt.Errorf("%s is not the file that was written", repopath.Quote(name))
		}
	}
	return nil
}

// holds reports whether the content of a regular file is that of one of the tree.
func holds(dir *os.Root, want File) (bool, error) {
	f, err := dir.OpenFile(want.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	h, form := sha1.New(), ""
	if strings.HasPrefix(want.Hash, SHA256) {
		h, form = sha256.New(), SHA256
	} else {
		fmt.Fprintf(h, "blob %d\x00", want.Size)
	}
	if _, err := io.Copy(h, io.LimitReader(f, want.Size+1)); err != nil {
		return false, err
	}
	return form+hex.EncodeToString(h.Sum(nil)) == want.Hash, nil
}

// above returns the directories above a path, the lowest first, without the root.
func above(name string) (dirs []string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}
