package pack

import (
	"bytes"
	"errors"
	"fmt"
)

// Modes of tree entries.
const (
	ModeTree      = 0o40000
	ModeFile      = 0o100644
	ModeGroupFile = 0o100664 // written by git of 2005
	ModeExec      = 0o100755
	ModeLink      = 0o120000
	ModeSubmodule = 0o160000
)

// TreeEntry is one entry of a raw tree object.
type TreeEntry struct {
	Mode uint32
	Name string
	ID   ID
}

var errTree = errors.New("malformed tree object")

// ParseTree reads a raw tree. It judges the form only; names pass the rule of
// path.go afterwards.
func ParseTree(data []byte) ([]TreeEntry, error) {
	var out []TreeEntry
	for len(data) > 0 {
		mode, n := uint32(0), 0
		for n < len(data) && data[n] >= '0' && data[n] <= '7' && n < 7 {
			mode = mode<<3 | uint32(data[n]-'0')
			n++
		}
		if n == 0 || n == len(data) || data[n] != ' ' {
			return out, errTree
		}
		data = data[n+1:]
		end := bytes.IndexByte(data, 0)
		if end < 0 || len(data) < end+21 {
			return out, errTree
		}
		e := TreeEntry{Mode: mode, Name: string(data[:end])}
		copy(e.ID[:], data[end+1:])
		out = append(out, e)
		data = data[end+21:]
	}
	return out, nil
}

// SortKey orders a tree as git does: a directory as if it had a slash at its end.
func (t TreeEntry) SortKey() string {
	if t.Mode == ModeTree {
		return t.Name + "/"
	}
	return t.Name
}

// TreeText is a raw tree.
func TreeText(entries []TreeEntry) (out []byte) {
	for _, t := range entries {
		out = fmt.Appendf(out, "%o %s\x00", t.Mode, t.Name)
		out = append(out, t.ID[:]...)
	}
	return out
}
