package git

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// lastSecond is the end of the year 9999, behind which a time has no form in JSON.
const lastSecond = 253402300799

// Signer signs commits.
type Signer interface {
	// Sign returns the armored signature of a commit without one: OpenPGP, or that of
	// SSH for the namespace "git". Its errors hold no secret. It makes no request.
	Sign(payload []byte) (armored []byte, err error)
}

// Person is who has written or signed a commit.
type Person struct{ Name, Mail string }

// CommitOptions describes what a commit is besides its files. The same one of the same
// Composition returns the same commit, as far as its Signer signs alike each time.
type CommitOptions struct {
	Author, Committer Person
	When              time.Time // of both; kept to the second
	Message           string
	Signer            Signer // nil = not signed
}

// NewCommit is a commit that is in memory only. See Mirrors.Push.
type NewCommit struct {
	Hash  string // of the commit
	made  []pack.Packed
	edits []Edit // for a directory
}

// Commit makes a commit of the tree, with the base as its parent. An error is one of
// the Signer, or says what is wrong with what is to be written.
func (c *Composition) Commit(m CommitOptions) (*NewCommit, error) {
	author, err := m.Author.line(m.When)
	if err != nil {
		return nil, fmt.Errorf("author of the commit: %w", err)
	}
	committer, err := m.Committer.line(m.When)
	if err != nil {
		return nil, fmt.Errorf("committer of the commit: %w", err)
	}
	message, err := messageText(m.Message)
	if err != nil {
		return nil, err
	}
	parent := ""
	if c.Base != "" {
		parent = "parent " + c.Base + "\n"
	}
	head := fmt.Sprintf("tree %s\n%sauthor %s\ncommitter %s\n", c.tree, parent, author, committer)
	signature := ""
	if m.Signer != nil {
		armored, err := m.Signer.Sign([]byte(head + "\n" + message))
		if err == nil {
			signature, err = signatureLines(string(armored))
		}
		if err != nil {
			return nil, fmt.Errorf("sign commit: %w", err)
		}
	}
	text := []byte(head + signature + "\n" + message)
	id := pack.IDOf(pack.CommitKind, text)
	commit := pack.Object{ID: id, Kind: pack.CommitKind, Data: text}.Pack()
	return &NewCommit{Hash: id.String(), made: append([]pack.Packed{commit}, c.made...)}, nil
}

// Directory makes the commit that a directory of plain files has with this tree. It has no parent,
// author or message.
func (c *Composition) Directory() *NewCommit {
	o := transport.DirCommit(c.tree)
	return &NewCommit{Hash: o.ID.String(), edits: c.edits}
}

// line is how a commit names a person. What git would leave out of a name at its ends
// is left out, what would end it early is refused.
func (p Person) line(when time.Time) (string, error) {
	const crud = " .,:;<>\"\\'"
	name, mail := strings.Trim(text.Line(p.Name, maxPerson), crud), strings.Trim(text.Line(p.Mail, maxPerson), crud)
	switch {
	case name == "" || mail == "":
		return "", errors.New("a name and a mail address are needed")
	case strings.ContainsAny(name+mail, "<>\n"):
		return "", errors.New("a name or a mail address holds < or >")
	case when.Unix() < 0:
		return "", errors.New("the time is before 1970")
	}
	return fmt.Sprintf("%s <%s> %d +0000", name, mail, when.Unix()), nil
}

// messageText is a message as git stores it: no blanks at the ends of its lines, no
// empty lines around it, one line break at its end.
func messageText(s string) (string, error) {
	if len(s) > maxMessage {
		return "", fmt.Errorf("the message of the commit is longer than %d bytes", maxMessage)
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return "", errors.New("the message of the commit is not text")
	}
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t")
	}
	if s = strings.Trim(strings.Join(lines, "\n"), "\n"); s == "" {
		return "", errors.New("the message of the commit is empty")
	}
	return s + "\n", nil
}

// signatureLines is a signature as the last header of a commit.
func signatureLines(armored string) (string, error) {
	armored = strings.TrimRight(strings.ReplaceAll(armored, "\r\n", "\n"), "\n")
	if !strings.HasPrefix(armored, "-----BEGIN ") || len(armored) > maxSignature || strings.ContainsRune(armored, 0) {
		return "", errors.New("what the key has made is no armored signature")
	}
	return signatureHeader + " " + strings.ReplaceAll(armored, "\n", "\n ") + "\n", nil
}
