package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing/object"

	"limpet/sync/git/pack"
	"limpet/sync/git/push"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// lastSecond is the end of the year 9999, behind which a time has no form in JSON.
const lastSecond = 253402300799

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
	if id, err = parseHash("commit", hash); err != nil {
		return id, c, err
	}
	data, err := v.object(id, pack.CommitKind)
	if errors.Is(err, pack.ErrMissing) {
		return id, c, &Error{Kind: Unknown, Err: fmt.Errorf("%w: %s", ErrUnknownCommit, id), Hint: "fetch it first"}
	}
	if err == nil {
		c, err = pack.ParseCommit(data)
	}
	return id, c, err
}

// object reads an object of a kind, of the size that is allowed.
func (v *reading) object(id pack.ID, kind pack.Kind) ([]byte, error) {
	return v.store.ReadKind(id, kind, v.limits.ObjectBytes)
}

// Signer signs commits.
type Signer interface {
	// Sign returns the armored signature of a commit without one: OpenPGP, or that of
	// SSH for the namespace "git". Its errors hold no secret. It makes no request.
	Sign(payload []byte) (armored []byte, err error)
}

// Person is who has written or signed a commit.
type Person struct{ Name, Mail string }

// Making describes what a commit is besides its files. The same one of the same
// Composition returns the same commit, as far as its Signer signs alike each time.
type Making struct {
	Author, Committer Person
	When              time.Time // of both; kept to the second
	Message           string
	Signer            Signer // nil = not signed
}

// Written is a commit that is in memory only. See Mirrors.Push.
type Written struct {
	Hash string // of the commit
	made []pack.Packed
}

// Limits of what a commit says, which are far beyond what anybody writes. Units: bytes.
const (
	maxMessage   = 64 << 10
	maxPerson    = 256
	maxSignature = 64 << 10
)

// Commit makes a commit of the tree, with the base as its parent. An error is one of
// the Signer, or says what is wrong with what is to be written.
func (c *Composition) Commit(m Making) (*Written, error) {
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
	return &Written{Hash: id.String(), made: append([]pack.Packed{commit}, c.made...)}, nil
}

// Directory makes the commit that a directory of plain files has with this tree. It has no parent, author or message.
func (c *Composition) Directory() *Written {
	o := transport.DirCommit(c.tree)
	return &Written{Hash: o.ID.String(), made: append([]pack.Packed{o.Pack()}, c.made...)}
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

// Repositories made on the spot, with no git on the host: for the demo and for
// trying things out. A Remote may name one under Options.AllowLocal.

// CreateRepository makes an empty bare repository in dir, whose HEAD is the
// branch main. It is an error when dir exists and is not empty.
func CreateRepository(dir string) error {
	if files, err := os.ReadDir(dir); err == nil && len(files) > 0 {
		return fmt.Errorf("create repository: %s is not empty", dir)
	}
	if err := makeBare(dir, "refs/heads/main"); err != nil {
		return fmt.Errorf("create repository: %w", err)
	}
	return nil
}

// CommitFiles writes one commit on a branch of a local repository: files by path. Without the branch it begins
// it. It returns the hash of the commit. Paths pass the rule that trees pass when they are read.
func CommitFiles(dir, branch, message string, files map[string][]byte, when time.Time) (string, error) {
	if err := checkRefName(branch); err != nil {
		return "", err
	}
	store, err := transport.OpenLocal(dir)
	if err != nil {
		return "", err
	}
	defer store.Close()
	refs, err := transport.LocalRefs(store.Filesystem().Root())
	if err != nil {
		return "", err
	}
	u := push.Update{Branch: headPrefix + branch, Old: refs[headPrefix+branch]}
	var c Composition
	root := &dirNode{}
	if !u.Old.IsZero() {
		c.Base = u.Old.String()
		if root.id, err = transport.TreeOf(store, u.Old); err != nil {
			return "", err
		}
	}
	read := func(id pack.ID) ([]byte, error) { return transport.RawTree(store, id) }
	e := &treeEditor{limits: pack.DefaultLimits, seen: map[pack.ID]bool{}, read: read}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if why := badPath(path+"/", pack.DefaultLimits); why != "" {
			return "", fmt.Errorf("commit %q: %s", path, why)
		}
		if err := e.file(root, path, *NewBlob(files[path])); err != nil {
			return "", err
		}
	}
	if c.tree, err = e.write(root); err != nil {
		return "", err
	}
	c.made = e.made
	author := Person{Name: "limpet", Mail: "limpet@localhost"}
	w, err := c.Commit(Making{Author: author, Committer: author, When: when, Message: message})
	if err != nil {
		return "", err
	}
	u.New, _ = pack.ParseID(w.Hash)
	u.Objects = w.made
	return w.Hash, push.Local(dir, u, pack.DefaultLimits)
}

// PermitsDir reports whether a directory of plain files may be read: it lies below one of others.
func PermitsDir(below []string, dir string) bool {
	root, err := transport.OpenDir(below, dir)
	if err == nil {
		root.Close()
	}
	return KindOf(err) != Refused
}
