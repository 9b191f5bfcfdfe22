package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/object"

	"limpet/sync/git/pack"
	"limpet/sync/text"
)

// person takes an author line apart: name and mail, and when.
func person(line string) (who string, when time.Time) {
	var s object.Signature
	s.Decode([]byte(line))
	end := cmp.Or(strings.LastIndexByte(line, '>')+1, len(line))
	if unix := s.When.Unix(); unix >= 0 && unix <= lastSecond {
		when = s.When
	}
	if _, zone := when.Zone(); zone/3600/24 != 0 { // it has no form in JSON
		when = when.UTC()
	}
	return text.Line(line[:end], 200), when
}

// Commit reads a commit of the mirror. ErrUnknownCommit when it is not there. It makes no request.
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

// parseHash reads the hash of an object of a kind.
func parseHash(kind, hash string) (pack.ID, error) {
	id, ok := pack.ParseID(hash)
	if !ok {
		return id, &Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a %s", text.Line(hash, 60), kind)}
	}
	return id, nil
}

// commit reads a commit by its 40 digits.
func (v *reading) commit(hash string) (id pack.ID, c pack.Commit, err error) {
	id, data, err := v.named("commit", hash, pack.CommitKind)
	if errors.Is(err, pack.ErrMissing) {
		return id, c, &Error{Kind: Unknown, Err: fmt.Errorf("%w: %s", ErrUnknownCommit, id), Hint: "fetch it first"}
	}
	if err == nil {
		c, err = pack.ParseCommit(data)
	}
	return id, c, err
}

// named reads an object of a kind by its 40 digits; what is its kind for people.
func (v *reading) named(what, hash string, kind pack.Kind) (id pack.ID, data []byte, err error) {
	if id, err = parseHash(what, hash); err == nil {
		data, err = v.object(id, kind)
	}
	return id, data, err
}

// object reads an object of a kind, of the size that is allowed.
func (v *reading) object(id pack.ID, kind pack.Kind) ([]byte, error) {
	return v.store.ReadKind(id, kind, v.limits.ObjectBytes)
}

// Limits of what a commit says, which are far beyond what anybody writes. Units: bytes.
const (
	maxMessage   = 64 << 10
	maxPerson    = 256
	maxSignature = 64 << 10
)
