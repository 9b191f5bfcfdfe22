package git

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"limpet/sync/git/pack"
)

// Entry is an entry of one directory, as Git has it.
type Entry struct {
	Name string
	Hash string // of the blob or tree; the commit of a submodule
	Mode uint32 // one of those of package pack
}

// The kinds of an Entry.
func (e Entry) IsDir() bool       { return e.Mode == pack.ModeTree }
func (e Entry) IsFile() bool      { return regular(e.Mode) }
func (e Entry) IsLink() bool      { return e.Mode == pack.ModeLink }
func (e Entry) IsSubmodule() bool { return e.Mode == pack.ModeSubmodule }
func (e Entry) Executable() bool  { return regular(e.Mode) && e.Mode&0o111 != 0 }

// Entries lists one directory by the hash of its tree, sorted by name in bytes. It has everything that Git would check
// out; a name that Git refuses makes the error Refused. It makes no request.
func (m *Mirrors) Entries(ctx context.Context, r Remote, tree string) (out []Entry, err error) {
	err = m.read(ctx, "read tree", r, func(v *reading) error {
		id, err := parseHash("directory", tree)
		if err != nil {
			return err
		}
		data, err := v.object(id, pack.TreeKind)
		if err != nil {
			return asDamage(err)
		}
		entries, err := pack.ParseTree(data)
		if err != nil {
			return &Error{Kind: Refused, Err: fmt.Errorf("the directory cannot be read: %w", err)}
		}
		out = make([]Entry, 0, len(entries))
		for _, e := range entries {
			if why := badName(e.Name); why.kind == gitName || e.Name == "" || e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "/") {
				return &Error{Kind: Refused, Err: fmt.Errorf("%q cannot be checked out: %s", showPath(e.Name), why.text)}
			}
			out = append(out, Entry{Name: e.Name, Hash: e.ID.String(), Mode: e.Mode})
		}
		slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return out, err
}
