package git

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"limpet/sync/git/pack"
	"limpet/sync/text"
)

// lastSecond is the end of the year 9999, behind which a time has no form in JSON.
const lastSecond = 253402300799

// person takes an author line apart: name and mail, and when.
func person(line string) (who string, when time.Time) {
	end := strings.LastIndexByte(line, '>')
	if end < 0 {
		return text.Line(line, 200), time.Time{}
	}
	who = text.Line(line[:end+1], 200)
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
		info = CommitInfo{Hash: id.String(), Tree: c.Tree.String()}
		for _, p := range c.Parents {
			info.Parents = append(info.Parents, p.String())
		}
		info.Author, info.When = person(c.Author)
		subject, _, _ := strings.Cut(strings.TrimLeft(c.Message, "\n"), "\n")
		info.Subject = text.Line(subject, 200)
		return nil
	})
	return info, err
}

// commit reads a commit by its 40 digits.
func (v *reading) commit(hash string) (pack.ID, pack.Commit, error) {
	id, ok := pack.ParseID(hash)
	if !ok {
		return id, pack.Commit{}, &Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a commit", text.Line(hash, 60))}
	}
	data, err := v.store.ReadKind(id, pack.CommitKind, v.limits.ObjectBytes)
	if errors.Is(err, pack.ErrMissing) {
		return id, pack.Commit{}, &Error{Kind: Unknown, Err: fmt.Errorf("%w: %s", ErrUnknownCommit, id), Hint: "fetch it first"}
	}
	if err != nil {
		return id, pack.Commit{}, err
	}
	c, err := pack.ParseCommit(data)
	return id, c, err
}
