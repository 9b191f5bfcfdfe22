package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// commit is a parsed commit object.
type commit struct {
	tree    objectID
	parents []objectID
	author  string // the line, without "author "
	message string
}

// maxParents bounds what a hostile commit can make us follow.
const maxParents = 1000

// parseCommit reads a raw commit.
func parseCommit(data []byte) (commit, error) {
	var c commit
	head, message, _ := bytes.Cut(data, []byte("\n\n"))
	c.message = string(message)
	for i, line := range strings.Split(string(head), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch {
		case i == 0:
			id, ok := parseID(value)
			if key != "tree" || !ok {
				return c, errors.New("malformed commit: it names no tree")
			}
			c.tree = id
		case key == "parent":
			id, ok := parseID(value)
			if !ok || len(c.parents) == maxParents {
				return c, errors.New("malformed commit: its parents cannot be read")
			}
			c.parents = append(c.parents, id)
		case key == "author":
			c.author = value
		}
	}
	return c, nil
}

// lastSecond is the end of the year 9999, behind which a time has no form in JSON.
const lastSecond = 253402300799

// person takes an author line apart: name and mail, and when.
func person(line string) (who string, when time.Time) {
	end := strings.LastIndexByte(line, '>')
	if end < 0 {
		return clean(line, 200), time.Time{}
	}
	who = clean(line[:end+1], 200)
	seconds, zone, _ := strings.Cut(strings.TrimSpace(line[end+1:]), " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || unix < 0 || unix > lastSecond {
		return who, time.Time{}
	}
	offset := 0
	if len(zone) == 5 && (zone[0] == '+' || zone[0] == '-') {
		if n, err := strconv.Atoi(zone[1:]); err == nil && n/100 < 24 && n%100 < 60 {
			offset = (n/100*60 + n%100) * 60
			if zone[0] == '-' {
				offset = -offset
			}
		}
	}
	return who, time.Unix(unix, 0).In(time.FixedZone("", offset))
}

// Commit reads a commit of the mirror. ErrUnknownCommit when it is not there.
// It makes no request.
func (m *Mirrors) Commit(ctx context.Context, r Remote, hash string) (CommitInfo, error) {
	var info CommitInfo
	err := m.read(ctx, "read commit", r, func(v *reading) error {
		id, c, err := v.commit(hash)
		if err != nil {
			return err
		}
		info = CommitInfo{Hash: id.String(), Tree: c.tree.String()}
		for _, p := range c.parents {
			info.Parents = append(info.Parents, p.String())
		}
		info.Author, info.When = person(c.author)
		subject, _, _ := strings.Cut(strings.TrimLeft(c.message, "\n"), "\n")
		info.Subject = clean(subject, 200)
		return nil
	})
	return info, err
}

// commit reads a commit by its 40 digits.
func (v *reading) commit(hash string) (objectID, commit, error) {
	id, ok := parseID(hash)
	if !ok {
		return id, commit{}, &Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a commit", clean(hash, 60))}
	}
	data, err := v.store.readKind(id, commitKind, v.limits.ObjectBytes)
	if errors.Is(err, errMissing) {
		return id, commit{}, &Error{Kind: Unknown, Err: fmt.Errorf("%w: %s", ErrUnknownCommit, id), Hint: "fetch it first"}
	}
	if err != nil {
		return id, commit{}, err
	}
	c, err := parseCommit(data)
	return id, c, err
}
