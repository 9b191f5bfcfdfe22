package gitrepository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
)

// Pack returns the tree of the commit in the mirror.
func (u *upstream) Pack(ctx context.Context) (controller.Content, error) {
	content, o := u.spec.content, u.spec.kind.o
	commit, err := o.Git.Commit(ctx, u.remote, u.ref.Hash)
	if err != nil {
		return controller.Content{}, fetchFailed(err)
	}
	options := archive.Options{Ignore: content.Ignore, Sparse: content.SparseCheckout, Submodules: content.Submodules,
		KeepSymlinks: u.visit.KeepSymlinks, MaxBytes: o.MaxBytes, MaxFiles: o.MaxFiles}
	for i, in := range content.Includes {
		its := u.included[i]
		options.Includes = append(options.Includes, archive.Include{From: in.FromPath, To: cmp.Or(in.ToPath, in.Repository.Name),
			Open: func(ctx context.Context) (io.ReadCloser, error) { return o.Artifacts.OpenFile(ctx, its) }})
	}
	tree := archive.Tree{Mirrors: o.Git, Remote: u.remote, Commit: u.ref.Hash}
	return controller.Content{Subject: commit.Subject, Write: func(w io.Writer) (archive.Digests, error) {
		pieces, older := u.pieces(ctx)
		if older != nil {
			defer older.Close()
		}
		options.Pieces = pieces
		d, err := archive.Write(ctx, w, tree, options)
		if err == nil {
			// A cache: without it, or with a damaged one, the next artifact is compressed whole.
			_ = o.Artifacts.WriteIndex(u.key(), d.Digest, pieces)
		}
		return d, packFailed(err)
	}}, nil
}

// pieces returns those of the stored artifact and its file; none without it.
func (u *upstream) pieces(ctx context.Context) (*archive.Pieces, io.Closer) {
	var pieces archive.Pieces
	o := u.spec.kind.o
	if o.Artifacts.ReadIndex(u.key(), u.visit.Stored.Digest, &pieces) != nil {
		return &archive.Pieces{}, nil
	}
	older, err := o.Artifacts.OpenFile(ctx, u.visit.Stored)
	if err != nil {
		return &archive.Pieces{}, nil
	}
	pieces.Archive = older
	return &pieces, older
}

func (u *upstream) key() artifact.Key {
	return artifact.KeyOf("GitRepository", u.visit.Key.Namespace, u.visit.Key.Name)
}

// packFailed returns the failure of an error of an archive, or the error where it is one of the
// disk.
func packFailed(err error) error {
	if e, ok := errors.AsType[*git.Error](err); ok { // submodules, a directory that is missing, a damaged mirror
		return fetchFailed(e)
	}
	if _, ok := errors.AsType[*archive.SparseError](err); ok {
		return &controller.Failure{Condition: controller.FetchFailed, Reason: auth.ReasonOperation, Err: err}
	}
	if _, ok := errors.AsType[*archive.IncludeError](err); ok {
		return &controller.Failure{Condition: controller.IncludeUnavailable, Reason: reasonCopy, Err: err}
	}
	return err
}

// Restore finds the commit of an artifact in the mirror. A commit that is in the status alone is
// verified like a new one.
func (u *upstream) Restore(ctx context.Context, lost artifact.Artifact) (controller.Found, error) {
	hash := artifact.Commit(lost.Revision)
	u.remote = git.Remote{URL: u.spec.git.URL, AllowInsecure: u.spec.kind.o.AllowInsecure, Demands: u.submodules()}
	u.ref = git.Ref{Name: hash, Hash: hash, Pinned: true}
	found := controller.Found{Revision: lost.Revision}
	if sum := u.checksumOf(u.ref); sum == lost.Checksum {
		found.Checksum = sum // else it is another configuration: Look has it made once more
	}
	if lost.Digest == "" {
		return found, u.verify(ctx)
	}
	return found, nil
}

// Event returns the message of an event.
func (u *upstream) Event(a artifact.Artifact, recovered bool) string {
	if recovered {
		return fmt.Sprintf("stored artifact for commit '%s'", a.Revision)
	}
	return fmt.Sprintf("stored artifact for commit '%s'", a.Subject)
}

// Outdated says that the artifacts of others have changed.
func (u *upstream) Outdated() (reason, message string) {
	if len(u.included) == 0 {
		return "", ""
	}
	return reasonInclude, "included artifacts differ from those of the stored artifact"
}

// Fields returns what the artifact was made of.
func (u *upstream) Fields(shown func(artifact.Artifact) map[string]any) map[string]any {
	content := u.spec.content
	out := map[string]any{"includedArtifacts": nil, "observedInclude": nil, "observedSparseCheckout": nil, "observedIgnore": nil,
		"observedRecurseSubmodules": nil, "sourceVerificationMode": nil}
	var included, includes, sparse []any
	for i, in := range content.Includes {
		one := map[string]any{"repository": map[string]any{"name": in.Repository.Name}}
		for name, value := range map[string]string{"fromPath": in.FromPath, "toPath": in.ToPath} {
			if value != "" {
				one[name] = value
			}
		}
		includes, included = append(includes, one), append(included, shown(u.included[i]))
	}
	for _, dir := range content.SparseCheckout {
		sparse = append(sparse, dir)
	}
	if len(includes) > 0 {
		out["includedArtifacts"], out["observedInclude"] = included, includes
	}
	if len(sparse) > 0 {
		out["observedSparseCheckout"] = sparse
	}
	if content.Submodules {
		out["observedRecurseSubmodules"] = true
	}
	if u.spec.git.Verify != "" {
		out["sourceVerificationMode"] = string(u.spec.git.Verify)
	}
	if content.Ignore != nil {
		out["observedIgnore"] = *content.Ignore
	}
	return out
}
