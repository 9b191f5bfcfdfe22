package diff

import (
	"context"
	"errors"
	"fmt"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/resources"
	"limpet/sync/snapshot"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
	"limpet/sync/worker"
)

// Comparer compares and lists commits in the mirrors of this host. It sends no requests.
type Comparer struct {
	Repos   *kube.Informer
	Mirrors *git.Mirrors
	Store   *state.Store // knows the unread files
	Kinds   resources.Kinds
	Pull    *worker.Pull // compares with the API
	// Artifacts are those of sources; nil where another one reconciles them.
	Artifacts *artifact.Store
}

// Compare implements control.Agent.
func (a Comparer) Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	if q.Source {
		return a.compareArtifacts(ctx, q)
	}
	u, ok := a.Repos.Get(q.Namespace, q.Repository)
	if !ok {
		return snapshot.Comparison{}, fmt.Errorf("the repository %s is not there any more, so its mirror is not known", q.Repository)
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return snapshot.Comparison{}, err
	}
	urls := worker.URLs(repo)
	if len(urls) == 0 {
		return snapshot.Comparison{}, fmt.Errorf("the repository %s has no URL", q.Repository)
	}
	c := comparison{mirrors: a.Mirrors, remote: git.Remote{URL: urls[0]}, dir: repo.Spec.Dir()}
	out, err := c.run(ctx, q)
	if errors.Is(err, git.ErrUnknownCommit) {
		return snapshot.Comparison{}, fmt.Errorf("the mirror on this host does not have both commits any more (%s, %s): "+
			"it was made anew since; git diff in a clone still tells", text.OrDash(text.ShortRef(q.From)), text.ShortRef(q.To))
	}
	return out, err
}

// comparison compares two commits of one mirror.
type comparison struct {
	mirrors *git.Mirrors
	remote  git.Remote
	dir     string
}

func (c comparison) run(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	changes, err := c.changes(ctx, q)
	if err != nil {
		return snapshot.Comparison{}, err
	}
	if q.Path == "" {
		out := snapshot.Comparison{All: len(changes)}
		for _, ch := range changes[:min(len(changes), snapshot.MaxFiles)] {
			out.Files = append(out.Files, snapshot.FileChange{Type: ch.Type, Path: ch.Path, From: ch.From})
		}
		return out, nil
	}
	for _, ch := range changes {
		if ch.Path == q.Path {
			change, err := c.text(ctx, ch)
			return snapshot.Comparison{All: len(changes), Text: &change}, err
		}
	}
	return snapshot.Comparison{}, fmt.Errorf("%s did not change between these commits", q.Path)
}

// changes returns the changed files. Without From all files are new.
func (c comparison) changes(ctx context.Context, q snapshot.CompareQuery) ([]git.Change, error) {
	if q.From != "" {
		return c.mirrors.Changes(ctx, c.remote, q.From, q.To, c.dir)
	}
	tree, err := c.mirrors.Tree(ctx, c.remote, q.To, c.dir)
	if err != nil {
		return nil, err
	}
	out := make([]git.Change, len(tree.Files))
	for i, f := range tree.Files {
		out[i] = git.Change{Type: git.ChangeAdded, Path: f.Path, Hash: f.Hash}
	}
	return out, nil
}

func (c comparison) text(ctx context.Context, ch git.Change) (snapshot.TextChange, error) {
	var sides [2][]byte
	for i, hash := range []string{ch.FromHash, ch.Hash} {
		if hash == "" {
			continue
		}
		data, err := c.mirrors.Blob(ctx, c.remote, hash, snapshot.MaxFileBytes)
		if large, ok := errors.AsType[*git.TooLargeError](err); ok {
			return snapshot.TextChange{Form: fmt.Sprintf("not compared: it has %s, and more than %s are not read here",
				text.Size(large.Size), text.Size(snapshot.MaxFileBytes))}, nil
		}
		if err != nil {
			return snapshot.TextChange{}, err
		}
		sides[i] = append([]byte{}, data...) // an empty file is there
	}
	return Texts(sides[0], sides[1]), nil
}
