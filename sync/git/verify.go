package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"limpet/sync/git/pack"
	"limpet/sync/signature"
	"limpet/sync/text"
)

// Verification describes what of a ref has to be signed, and by whom.
type Verification struct {
	Mode signature.Mode
	Keys *signature.Keys
	// Principals, if any, are the persons of whom one has to be the owner of the key;
	// OfMaker asks for the one whose mail address the commit or tag itself names.
	Principals []string
	OfMaker    bool
	Now        time.Time // of a clock that can be trusted
}

// Verified is an object whose signature is good.
type Verified struct {
	Object string // for people: "commit 1a2b3c4", "tag v1.0"
	Signer signature.Signer
}

// Verify says who has signed a ref that was fetched. It reads the objects as they
// are in the mirror and makes no request. Every error is an *Error; it is of kind
// Unverified, and wraps a *signature.Error, when the signature is what is wrong.
func (m *Mirrors) Verify(ctx context.Context, r Remote, ref Ref, v Verification) (found []Verified, err error) {
	err = m.read(ctx, "verify", r, func(g *reading) error {
		found = nil
		if v.Mode.Tag() {
			one, err := g.verifyTag(ref, v)
			if err != nil {
				return unverified(err)
			}
			found = append(found, one)
		}
		if v.Mode.Head() {
			one, err := g.verifyCommit(ref, v)
			if err != nil {
				return unverified(err)
			}
			found = append(found, one)
		}
		return nil
	})
	return found, err
}

// unverified is what a signature that is not good means for a caller.
func unverified(err error) error {
	e, ok := errors.AsType[*signature.Error](err)
	if !ok {
		return err
	}
	out := &Error{Kind: Unverified, Err: e}
	switch e.Kind {
	case signature.Unsigned:
		out.Hint = "nothing of it is used; sign it and push it again"
	case signature.UnknownKey:
		out.Hint = "add its key to those that may sign, if it is one of yours"
	}
	return out
}

func (g *reading) verifyCommit(ref Ref, v Verification) (Verified, error) {
	id, ok := pack.ParseID(ref.Hash)
	if !ok {
		return Verified{}, &Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a commit", text.Line(ref.Hash, 60))}
	}
	data, err := g.store.ReadKind(id, pack.CommitKind, g.limits.ObjectBytes)
	if err != nil {
		return Verified{}, err
	}
	what := "commit " + id.String()[:7]
	s, err := splitSignedCommit(data)
	if err != nil {
		return Verified{}, &signature.Error{Kind: signature.Malformed, Err: fmt.Errorf("%s %w", what, err)}
	}
	return s.check(what, v)
}

func (g *reading) verifyTag(ref Ref, v Verification) (Verified, error) {
	name, isTag := strings.CutPrefix(ref.Name, "refs/tags/")
	what := "tag " + text.Line(name, 100)
	wrong := func(kind signature.Kind, format string, args ...any) (Verified, error) {
		return Verified{}, &signature.Error{Kind: kind, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case !isTag:
		return wrong(signature.WrongMode, "%s is no tag, and a signed tag is asked for", text.Line(ref.Name, 100))
	case ref.Tag == "":
		return wrong(signature.WrongMode, "%s is only a name of a commit, which nobody can sign: make it with git tag -s", what)
	}
	id, ok := pack.ParseID(ref.Tag)
	if !ok {
		return Verified{}, &Error{Kind: Refused, Err: fmt.Errorf("%q is not the hash of a tag", text.Line(ref.Tag, 60))}
	}
	data, err := g.store.ReadKind(id, pack.TagKind, g.limits.ObjectBytes)
	if err != nil {
		return Verified{}, err
	}
	t, err := splitSignedTag(data)
	switch {
	case err != nil:
		return wrong(signature.Malformed, "%s %w", what, err)
	case t.kind != "commit" || t.object.String() != ref.Hash:
		return wrong(signature.Malformed, "%s is not one of commit %.7s itself", what, ref.Hash)
	}
	found, err := t.check(what, v)
	if err == nil && t.name != name {
		// A signed tag was given another name: an old release as the newest.
		return wrong(signature.Bad, "%s was signed as tag %s", what, text.Line(t.name, 100))
	}
	return found, err
}

// signedObject is a commit or a tag taken apart: the bytes that were signed, exactly as
// they are stored, and the signature.
type signedObject struct {
	text, signature []byte
	by              author // the committer or tagger
}

// author is who made a commit or a tag, and when.
type author struct {
	mail string // "" when the line does not name exactly one
	when time.Time
}

// signatureHeader is the header of a commit that holds its signature. In SHA-1
// repositories git leaves others that begin so, for other hashes, out of what is signed;
// here they are refused.
const signatureHeader = "gpgsig"

// splitSignedCommit takes a raw commit apart. A signature may be anywhere in the head, once.
func splitSignedCommit(data []byte) (signedObject, error) {
	var s signedObject
	var committer string
	inSignature, seen := false, false
	for rest := data; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		whole := rest[:len(rest)-len(after)]
		key, value, has := bytes.Cut(line, []byte(" "))
		switch {
		case len(line) == 0: // the message follows
			s.text = append(s.text, rest...)
			after = nil
		case line[0] == ' ' && inSignature:
			s.signature = append(s.signature, whole[1:]...)
		case string(key) == signatureHeader && has:
			if seen {
				return s, errors.New("has several signatures")
			}
			inSignature, seen = true, true
			s.signature = append(s.signature, value...)
			if ended {
				s.signature = append(s.signature, '\n')
			}
		case bytes.HasPrefix(line, []byte(signatureHeader)):
			return s, errors.New("has a signature for another form of repository")
		default:
			inSignature = false
			if string(key) == "committer" && committer == "" {
				committer = string(value)
			}
			s.text = append(s.text, whole...)
		}
		rest = after
	}
	s.by = parseMaker(committer)
	return s, nil
}

// The beginnings of signatures that git looks for at the end of a tag.
var signatureBegins = [][]byte{
	[]byte("-----BEGIN PGP SIGNATURE-----"), []byte("-----BEGIN PGP MESSAGE-----"),
	[]byte("-----BEGIN SIGNED MESSAGE-----"), []byte("-----BEGIN SSH SIGNATURE-----"),
}

// tag is a parsed tag object.
type tag struct {
	signedObject
	object pack.ID
	kind   string
	name   string
}

// splitSignedTag takes a raw tag apart. Its signature begins with the last line that looks
// like the first one of a signature, and goes to the end.
func splitSignedTag(data []byte) (tag, error) {
	t := tag{signedObject: signedObject{text: data}}
	for at := 0; at < len(data); {
		for _, begin := range signatureBegins {
			if bytes.HasPrefix(data[at:], begin) {
				t.text, t.signature = data[:at], data[at:]
			}
		}
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		at += end + 1
	}
	head, _, _ := bytes.Cut(t.text, []byte("\n\n"))
	lines := strings.Split(strings.TrimSuffix(string(head), "\n"), "\n")
	for i, want := range []string{"object ", "type ", "tag "} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			return t, errors.New("malformed tag: it has no " + strings.TrimSpace(want))
		}
	}
	id, ok := pack.ParseID(strings.TrimPrefix(lines[0], "object "))
	if !ok {
		return t, errors.New("malformed tag: it names no object")
	}
	t.object, t.kind, t.name = id, strings.TrimPrefix(lines[1], "type "), strings.TrimPrefix(lines[2], "tag ")
	for _, l := range lines[3:] {
		switch who, found := strings.CutPrefix(l, "tagger "); {
		case found:
			t.by = parseMaker(who)
			return t, nil
		case strings.HasPrefix(l, signatureHeader):
			return t, errors.New("has a signature for another form of repository")
		}
	}
	return t, nil
}

// parseMaker takes a committer line apart.
func parseMaker(line string) (p author) {
	_, p.when = person(line)
	name, rest, ok := strings.Cut(line, "<")
	mail, after, closed := strings.Cut(rest, ">")
	if ok && closed && !strings.ContainsAny(name, ">") && !strings.ContainsAny(mail, "<") && !strings.ContainsAny(after, "<>") {
		p.mail = mail
	}
	return p
}

// check verifies the signature of what was taken apart; what is its name for people.
func (s signedObject) check(what string, v Verification) (Verified, error) {
	claim := signature.Claim{Made: s.by.when, Now: v.Now, Principals: v.Principals}
	if v.OfMaker {
		if claim.Principals = []string{s.by.mail}; s.by.mail == "" {
			return Verified{}, &signature.Error{Kind: signature.Principal, Err: fmt.Errorf("%s does not say by one mail address who made it", what)}
		}
	}
	signer, err := v.Keys.Verify(s.text, s.signature, claim)
	if e, ok := errors.AsType[*signature.Error](err); ok {
		return Verified{}, &signature.Error{Kind: e.Kind, Err: fmt.Errorf("%s %w", what, e.Err)}
	}
	return Verified{Object: what, Signer: signer}, err
}
