package git

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"limpet/sync/git/pack"
	"limpet/sync/signature"
)

// signed is a commit or a tag taken apart: the bytes that were signed, exactly as
// they are stored, and the signature.
type signed struct {
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

// splitCommit takes a raw commit apart. A signature may be anywhere in the head, once.
func splitCommit(data []byte) (signed, error) {
	var s signed
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
	s.by = maker(committer)
	return s, nil
}

// The beginnings of signatures that git looks for at the end of a tag.
var signatureBegins = [][]byte{
	[]byte("-----BEGIN PGP SIGNATURE-----"), []byte("-----BEGIN PGP MESSAGE-----"),
	[]byte("-----BEGIN SIGNED MESSAGE-----"), []byte("-----BEGIN SSH SIGNATURE-----"),
}

// tag is a parsed tag object.
type tag struct {
	signed
	object pack.ID
	kind   string
	name   string
}

// splitTag takes a raw tag apart. Its signature begins with the last line that looks
// like the first one of a signature, and goes to the end.
func splitTag(data []byte) (tag, error) {
	t := tag{signed: signed{text: data}}
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
			t.by = maker(who)
			return t, nil
		case strings.HasPrefix(l, signatureHeader):
			return t, errors.New("has a signature for another form of repository")
		}
	}
	return t, nil
}

// maker takes a committer line apart.
func maker(line string) (p author) {
	_, p.when = person(line)
	name, rest, ok := strings.Cut(line, "<")
	mail, after, closed := strings.Cut(rest, ">")
	if ok && closed && !strings.ContainsAny(name, ">") && !strings.ContainsAny(mail, "<") && !strings.ContainsAny(after, "<>") {
		p.mail = mail
	}
	return p
}

// check verifies the signature of what was taken apart; what is its name for people.
func (s signed) check(what string, v Verification) (Verified, error) {
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
