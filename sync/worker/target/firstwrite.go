package target

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"limpet/sync/git"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/sink"
)

// Files are judged before a directory is written, since what is bad decides what is deleted and what
// stays. At the first write nothing is there: each file is read once, judged, and then written or
// left out.

// judges is how many files are read and judged ahead of the one that is written.
const judges = 4

// judged is a file that was read and judged.
type judged struct {
	path string
	data []byte
	uid  string
	done bool  // it was written ahead
	bad  error // why Grafana would not load it
	err  error // why it cannot be read
}

// isFirst reports whether the files can be judged while they are written.
func (p *DirectoryPlan) isFirst() bool {
	large := func(f checkout.File) bool { return f.LFS }
	return p.dir.IsFirst() && (p.of.Max == 0 || int64(len(p.commit.Files)) <= p.of.Max) &&
		!slices.ContainsFunc(p.commit.Files, large)
}

// applyFirst is Apply for files that are not judged yet.
func (p *DirectoryPlan) applyFirst(ctx context.Context, to resources.Recorder) (Counts, error) {
	ctx, stop := context.WithCancel(ctx)
	ahead := make(chan chan judged, judges)
	files := p.Added // which the plan may have changed before the first is read
	var g errgroup.Group
	defer func() { _ = g.Wait() }() // errors are in what was judged
	defer stop()
	g.Go(func() error {
		for _, f := range files {
			one := make(chan judged, 1)
			select {
			case ahead <- one:
			case <-ctx.Done():
				return nil
			}
			g.Go(func() error {
				one <- p.read(ctx, f)
				return nil
			})
		}
		return nil
	})
	owners := uidOwners{}
	err := p.dir.Write(ctx, p.Plan, func(ctx context.Context, f sink.File) (io.ReadCloser, error) {
		var j judged
		select {
		case one := <-ahead:
			j = <-one
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if j.err == nil && j.path != f.Path { // its bytes belong to another file
			j.err = fmt.Errorf("the content is that of %s", j.path)
		}
		if j.err != nil {
			return nil, j.err
		}
		if f.UID = j.uid; j.bad == nil {
			j.bad = owners.claim(f)
		}
		p.SetUID(f)
		if j.bad != nil {
			p.mu.Lock()
			p.Bad[f.Path] = j.bad
			p.mu.Unlock()
			if p.of.Strict {
				return nil, sink.ErrLeftOut
			}
		}
		if j.done {
			return nil, nil
		}
		return &body{bytes.NewReader(j.data), j.data}, nil
	}, func(f sink.File) {
		p.mu.Lock()
		bad := p.Bad[f.Path]
		p.mu.Unlock()
		to.Record(ctx, fileResult(resources.Created, f.Path, bad))
	})
	if err != nil {
		return nil, err
	}
	if p.of.Strict {
		for _, name := range slices.Sorted(maps.Keys(p.Bad)) {
			to.Record(ctx, fileResult(resources.Ignored, name, p.Bad[name]))
		}
		p.Files -= len(p.Bad)
		p.warnOfNone()
	}
	return Counts{SinkFiles: int64(p.Files)}, nil
}

// body is the content of a file that is written.
type body struct {
	*bytes.Reader
	data []byte
}

func (b *body) Close() error {
	git.Recycle(b.data)
	return nil
}

// read reads a file and judges it.
func (p *DirectoryPlan) read(ctx context.Context, f sink.File) (j judged) {
	j.path = f.Path
	if j.uid, j.done = p.dir.Written(f); j.done {
		return j
	}
	j.data, j.err = p.commit.Content.Read(ctx, f.Hash)
	if j.err == nil && (p.of.Strict || isJSON(f.Path)) {
		j.uid, j.bad = p.of.judge(checkout.Blob{Path: f.Path, Hash: f.Hash}, j.data)
	}
	return j
}
