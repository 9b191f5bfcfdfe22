package target

import (
	"context"

	"limpet/sync/api/repopath"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// writers is how many files are judged and written while they come: each waits for the disk.
const writers = 8

// Early judges and writes the files of a directory in which nothing is yet while their pack comes.
// Files that it does not write are left to the plan, and files that the plan does not want are
// removed by it.
type Early struct {
	of    *Directory
	to    *sink.Ahead
	files *arrivals
}

// Early returns the Early of a directory, nil for one that has been written before.
func (d *Directory) Early(ctx context.Context) *Early {
	to := sink.NewAhead(ctx, d.At, d.Owner())
	if to == nil {
		return nil
	}
	e := &Early{of: d, to: to}
	e.files = newArrivals(writers, e.write)
	return e
}

// Receive implements pack.Receiver. It is for one goroutine.
func (e *Early) Receive(path, hash string, exec bool, content []byte) {
	e.files.receive(path, hash, exec, content)
}

// write writes a file that a plan may want.
func (e *Early) write(f arrived) {
	strict := e.of.Strict
	if strict && !repopath.IsResourceFile(f.Path) || repopath.Check(f.Path, true) != nil || f.Size > resources.MaxFile {
		return
	}
	if strict || isJSON(f.Path) {
		var bad error
		if f.UID, bad = e.of.judge(checkout.Blob{Path: f.Path, Hash: f.Hash}, f.content); bad != nil {
			return
		}
	}
	e.to.Write(f.File, f.content)
}

// Open opens the directory for its first write, which takes what was written. Nothing is received
// after it.
func (e *Early) Open(ctx context.Context) (*sink.Dir, error) {
	e.files.end()
	return e.to.Open(ctx)
}

// Close removes what was written and not taken.
func (e *Early) Close() {
	e.files.end()
	_ = e.to.Close() // the next write removes what is left
}
