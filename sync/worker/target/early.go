package target

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/api/repopath"
	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// writers is how many files are judged and written while they come: each waits for the disk.
const writers = 8

// patience is how long one fetch may wait for the disk. Beyond it files are left to the write of the
// whole tree, so that a slow disk does not keep a Git server.
const patience = 5 * time.Second

// Early judges and writes the files of a directory in which nothing is yet while their pack comes.
// Files that it does not write are left to the plan, and files that the plan does not want are
// removed by it.
type Early struct {
	of      *Directory
	to      *sink.Ahead
	files   chan arrived
	writers errgroup.Group
	left    time.Duration // of patience
}

// arrived is a file that has come.
type arrived struct {
	sink.File
	content []byte
}

// Early returns the Early of a directory, nil for one that has been written before.
func (d *Directory) Early(ctx context.Context) *Early {
	to := sink.NewAhead(ctx, d.At, d.Owner())
	if to == nil {
		return nil
	}
	e := &Early{of: d, to: to, files: make(chan arrived), left: patience}
	for range writers {
		e.writers.Go(func() error {
			for f := range e.files {
				e.write(f)
				git.Recycle(f.content)
			}
			return nil
		})
	}
	return e
}

// Receive implements pack.Receiver. It is for one goroutine.
func (e *Early) Receive(path, hash string, exec bool, content []byte) {
	f := arrived{sink.File{Path: path, Hash: hash, Size: int64(len(content)), Exec: exec}, content}
	select {
	case e.files <- f:
		return
	default:
	}
	began := time.Now()
	late := time.NewTimer(e.left)
	defer late.Stop()
	select {
	case e.files <- f:
	case <-late.C:
		git.Recycle(content)
	}
	e.left -= time.Since(began)
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
	e.end()
	return e.to.Open(ctx)
}

// end waits for the writers.
func (e *Early) end() {
	if e.files != nil {
		close(e.files)
		_ = e.writers.Wait() // the plan writes what they have not
		e.files = nil
		e.left = 0 // a later fetch is of what is read again
	}
}

// Close removes what was written and not taken.
func (e *Early) Close() {
	e.end()
	_ = e.to.Close() // the next write removes what is left
}
