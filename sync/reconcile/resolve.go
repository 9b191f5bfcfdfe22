package reconcile

import (
	"context"
	"errors"

	"limpet/sync/git"
	"limpet/sync/git/gitref"
)

// Resolver asks remotes; see git.Mirrors.
type Resolver interface {
	Resolve(ctx context.Context, r git.Remote, sel gitref.Selector) (git.Ref, error)
}

// Resolve asks a remote what a selector stands for, and where it refuses a token from memory, which
// was revoked then, once more with what again finds. renewed reports that it was another one;
// remote is then the one that was asked.
func Resolve(
	ctx context.Context, from Resolver, remote *git.Remote, sel gitref.Selector, again func(context.Context) (git.Remote, error),
) (ref git.Ref, renewed bool, err error) {
	ref, err = from.Resolve(ctx, *remote, sel)
	if creds := remote.Creds; git.KindOf(err) == git.Auth && creds != nil && creds.Forget != nil {
		if other, none := again(ctx); none == nil {
			*remote, renewed = other, true
			ref, err = from.Resolve(ctx, other, sel)
		}
	}
	if err == nil && ref.Hash == "" {
		err = &git.Error{Kind: git.Unknown, Op: "resolve", Err: errors.New("the answer names no commit")}
	}
	return ref, renewed, err
}
