package git

import (
	"fmt"
	"io"
	"slices"

	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
	"limpet/sync/text"
)

// receive asks for w and installs the answer in dir. old is nil for a clone.
func (f *fetch) receive(dir string, old *handle, w transport.Want, budget int64) error {
	got, err := f.download(dir, w, budget)
	if got.pack != nil {
		defer got.pack.Discard()
	}
	if err != nil {
		return err
	}
	return f.install(dir, old, got)
}

// download is what a server has sent for a want.
type download struct {
	pack *pack.Spooled
	ends []pack.ID          // of history, with those of before
	more []pack.ID          // ends of before whose parents are sent
	refs map[string]pack.ID // all that the server has
}

// download asks for w and spools the answer in dir. The pack is to be discarded
// also when there is an error.
func (f *fetch) download(dir string, w transport.Want, budget int64) (got download, err error) {
	leave, err := f.Visit()
	if err != nil {
		return got, err
	}
	defer leave()
	l := f.mirror.kept(f.Whom())
	if l == nil {
		if l, err = f.List(); err != nil {
			return got, err
		}
	}
	if f.depth > 0 {
		defer f.keep(l) // it may be asked for more
	} else {
		defer l.Session.Close()
	}
	got.refs = l.Refs.References
	if _, named := got.refs[f.name]; f.name != "" && !named && !f.fallback {
		return got, &Error{Kind: BranchNotFound, Err: fmt.Errorf("there is no %q any more", text.Line(f.name, 100)), Hint: "resolve the branch again"}
	}
	answer, content, err := f.Ask(l, w, budget)
	if err != nil {
		return got, err
	}
	defer answer.Close()
	if got.pack, err = pack.Spool(dir, content, f.Limits); err != nil {
		return got, err
	}
	io.Copy(io.Discard, io.LimitReader(answer, transport.ErrorBody)) // to the end, so that the connection can be used again
	got.ends = slices.Concat(w.Shallows, w.Ends)
	for _, id := range answer.Shallows {
		if !slices.Contains(got.ends, id) {
			got.ends = append(got.ends, id)
		}
	}
	got.more = answer.Unshallows
	got.ends = slices.DeleteFunc(got.ends, func(id pack.ID) bool { return slices.Contains(got.more, id) })
	return got, nil
}
