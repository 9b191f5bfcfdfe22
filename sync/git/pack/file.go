package pack

import (
	"os"
	"path/filepath"
)

// The beginnings of the names of files that are being made: a process that was killed
// leaves them behind.
const (
	TempPrefix = "tmp_limpet_"
	packPrefix = "tmp_pack_"
)

// ReplaceFile writes a file that is whole, old or new, after a power loss. The
// caller syncs the directory when it matters which.
func ReplaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), TempPrefix)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
