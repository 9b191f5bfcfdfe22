package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// Foreign returns an ErrForeign for a file that is a person's text, and so no state file, however damaged: the first
// page of one has zeros in it. A file that is named as state files are, or has the mark of an owner beside it, was one.
// It writes nothing.
func Foreign(path string) error {
	if filepath.Ext(path) == ".db" {
		return nil
	}
	if _, err := os.Lstat(path + ".owner"); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // whoever opens it in earnest says so
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 4<<10)
	n, err := io.ReadFull(f, head)
	if n == 0 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	if head = head[:n]; !isText(head) {
		return nil
	}
	return fmt.Errorf("%s is a text file: %w; it was not touched", path, ErrForeign)
}

// isText says that the beginning of a file is text. Its end may cut a character.
func isText(head []byte) bool {
	for cut := range min(utf8.UTFMax, len(head)) {
		if utf8.Valid(head[:len(head)-cut]) {
			return bytes.IndexByte(head, 0) < 0
		}
	}
	return false
}
