package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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
	// OfMaker adds the one whose mail address the commit or tag itself names.
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
		for _, one := range []struct {
			wanted bool
			verify func(Ref, Verification) (Verified, error)
		}{{v.Mode.Tag(), g.verifyTag}, {v.Mode.Head(), g.verifyCommit}} {
			if !one.wanted {
				continue
			}
			good, err := one.verify(ref, v)
			if e, bad := errors.AsType[*signature.Error](err); bad {
				return &Error{Kind: Unverified, Err: e, Hint: signatureHints[e.Kind]}
			}
			if err != nil {
				return err
			}
			found = append(found, good)
		}
		return nil
	})
	return found, err
}

// signatureHints say what to do about a signature that is not good.
var signatureHints = map[signature.Kind]string{
	signature.Unsigned:   "nothing of it is used; sign it and push it again",
	signature.UnknownKey: "add its key to those that may sign, if it is one of yours",
}

func wrongSignature(kind signature.Kind, format string, args ...any) error {
	return &signature.Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

func (g *reading) verifyCommit(ref Ref, v Verification) (Verified, error) {
	id, data, err := g.named("commit", ref.Hash, pack.CommitKind)
	if err != nil {
		return Verified{}, err
	}
	what := "commit " + id.String()[:7]
	s, err := splitSignedCommit(data)
	if err != nil {
		return Verified{}, wrongSignature(signature.Malformed, "%s %w", what, err)
	}
	return s.check(what, v)
}

func (g *reading) verifyTag(ref Ref, v Verification) (Verified, error) {
	name, isTag := strings.CutPrefix(ref.Name, tagPrefix)
	what := "tag " + text.Line(name, 100)
	switch {
	case !isTag:
		return Verified{}, wrongSignature(signature.WrongMode, "%s is not a tag; a signed tag is required", text.Line(ref.Name, 100))
	case ref.Tag == "":
		return Verified{}, wrongSignature(signature.WrongMode, "%s is a lightweight tag, which has no signature: use git tag -s", what)
	}
	_, data, err := g.named("tag", ref.Tag, pack.TagKind)
	if err != nil {
		return Verified{}, err
	}
	t, err := splitSignedTag(data)
	switch {
	case err != nil:
		return Verified{}, wrongSignature(signature.Malformed, "%s %w", what, err)
	case t.kind != "commit" || t.object.String() != ref.Hash:
		return Verified{}, wrongSignature(signature.Malformed, "%s is not one of commit %.7s itself", what, ref.Hash)
	}
	found, err := t.signed.check(what, v)
	if err == nil && t.name != name { // a signed tag was given another name: an old release as the newest
		err = wrongSignature(signature.Bad, "%s was signed as tag %s", what, text.Line(t.name, 100))
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

// signatureHeader is the header of a commit that holds its signature. In SHA-1 repositories git
// leaves others that begin so, for other hashes, out of what is signed; here they are refused.
const signatureHeader = "gpgsig"

// splitSignedCommit takes a raw commit apart. A signature may be anywhere in the head, once.
func splitSignedCommit(data []byte) (s signedObject, err error) {
	var committer string
	inSignature, seen := false, false
	at := 0
	for line := range bytes.Lines(data) {
		key, value, has := bytes.Cut(line, []byte(" "))
		header := has && string(key) == signatureHeader
		switch {
		case line[0] == '\n': // the message follows
			s.text, s.by = append(s.text, data[at:]...), parseMaker(committer)
			return s, nil
		case line[0] == ' ' && inSignature:
			s.signature = append(s.signature, line[1:]...)
		case header && seen:
			return s, errors.New("has several signatures")
		case header:
			inSignature, seen = true, true
			s.signature = append(s.signature, value...)
		case bytes.HasPrefix(line, []byte(signatureHeader)):
			return s, errors.New("has a signature for another form of repository")
		default:
			inSignature = false
			if string(key) == "committer" && committer == "" {
				committer = strings.TrimSuffix(string(value), "\n")
			}
			s.text = append(s.text, line...)
		}
		at += len(line)
	}
	s.by = parseMaker(committer)
	return s, nil
}

// The beginnings of signatures that git looks for at the end of a tag.
var signatureBegins = []string{"-----BEGIN PGP SIGNATURE-----", "-----BEGIN PGP MESSAGE-----", "-----BEGIN SIGNED MESSAGE-----",
	"-----BEGIN SSH SIGNATURE-----"}

type tag struct {
	signed signedObject
	object pack.ID
	kind   string
	name   string
}

// splitSignedTag takes a raw tag apart. Its signature begins with the last line that looks
// like the first one of a signature, and goes to the end.
func splitSignedTag(data []byte) (tag, error) {
	t := tag{signed: signedObject{text: data}}
	at := 0
	for line := range bytes.Lines(data) {
		if slices.ContainsFunc(signatureBegins, func(begin string) bool { return strings.HasPrefix(string(line), begin) }) {
			t.signed.text, t.signed.signature = data[:at], data[at:]
		}
		at += len(line)
	}
	head, _, _ := bytes.Cut(t.signed.text, []byte("\n\n"))
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
	t.object = id
	t.kind = strings.TrimPrefix(lines[1], "type ")
	t.name = strings.TrimPrefix(lines[2], "tag ")
	for _, l := range lines[3:] {
		switch who, found := strings.CutPrefix(l, "tagger "); {
		case found:
			t.signed.by = parseMaker(who)
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
	switch {
	case !v.OfMaker:
	case s.by.mail != "":
		claim.Principals = append(slices.Clone(v.Principals), s.by.mail)
	case len(v.Principals) == 0:
		return Verified{}, wrongSignature(signature.Principal, "%s does not say by one mail address who made it", what)
	}
	signer, err := v.Keys.Verify(s.text, s.signature, claim)
	if e, ok := errors.AsType[*signature.Error](err); ok {
		err = wrongSignature(e.Kind, "%s %w", what, e.Err)
	}
	return Verified{Object: what, Signer: signer}, err
}
