package pack

import (
	"bytes"
	"errors"
	"strings"
)

// Commit is a parsed commit object.
type Commit struct {
	Tree    ID
	Parents []ID
	Author  string // the line, without "author "
	Message string
}

// maxParents bounds what a hostile commit can make us follow.
const maxParents = 1000

// ParseCommit reads a raw commit.
func ParseCommit(data []byte) (Commit, error) {
	var c Commit
	head, message, _ := bytes.Cut(data, []byte("\n\n"))
	c.Message = string(message)
	for i, line := range strings.Split(string(head), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch {
		case i == 0:
			id, ok := ParseID(value)
			if key != "tree" || !ok {
				return c, errors.New("malformed commit: it names no tree")
			}
			c.Tree = id
		case key == "parent":
			id, ok := ParseID(value)
			if !ok || len(c.Parents) == maxParents {
				return c, errors.New("malformed commit: its parents cannot be read")
			}
			c.Parents = append(c.Parents, id)
		case key == "author":
			c.Author = value
		}
	}
	return c, nil
}
