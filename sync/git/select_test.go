package git

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	one, two, three, tagged := pack.ID{1}, pack.ID{2}, pack.ID{3}, pack.ID{4}
	adv := packp.NewAdvRefs()
	adv.Capabilities.Add(capability.SymRef, "HEAD:refs/heads/trunk")
	adv.References = map[string]pack.ID{
		"refs/heads/trunk": one, "refs/heads/v1.0.0": two, "refs/heads/feature/x": two, "refs/heads/refs/heads/odd": three,
		"refs/tags/v1.0.0": one, "refs/tags/v1.1.0": tagged, "refs/tags/trunk": three, "refs/tags/app/2.0.0": two,
		"refs/pull/420/head": two, "refs/merge-requests/7/merge": three,
	}
	adv.Peeled = map[string]pack.ID{"refs/tags/v1.1.0": three}
	hash := one.String()
	for _, c := range []struct {
		sel  gitref.Selector
		want Ref
	}{
		{gitref.Selector{}, Ref{Name: "refs/heads/trunk", Hash: hash}},
		{gitref.Selector{Branch: "trunk"}, Ref{Name: "refs/heads/trunk", Hash: hash}},
		{gitref.Selector{Branch: "v1.0.0"}, Ref{Name: "refs/heads/v1.0.0", Hash: two.String()}},
		{gitref.Selector{Branch: "refs/heads/odd"}, Ref{Name: "refs/heads/refs/heads/odd", Hash: three.String()}},
		{gitref.Selector{Tag: "v1.0.0"}, Ref{Name: "refs/tags/v1.0.0", Hash: hash}},
		{gitref.Selector{Tag: "trunk"}, Ref{Name: "refs/tags/trunk", Hash: three.String()}},
		{gitref.Selector{Tag: "v1.1.0"}, Ref{Name: "refs/tags/v1.1.0", Hash: three.String(), Tag: tagged.String()}},
		{gitref.Selector{Name: "refs/tags/v1.1.0"}, Ref{Name: "refs/tags/v1.1.0", Hash: three.String(), Tag: tagged.String()}},
		{gitref.Selector{SemVer: "1.x"}, Ref{Name: "refs/tags/v1.1.0", Hash: three.String(), Tag: tagged.String()}},
		{gitref.Selector{SemVer: "1.0.x"}, Ref{Name: "refs/tags/v1.0.0", Hash: hash}},
		{gitref.Selector{SemVer: "*", TagPrefix: "app/"}, Ref{Name: "refs/tags/app/2.0.0", Hash: two.String()}},
		{gitref.Selector{Name: "refs/pull/420/head"}, Ref{Name: "refs/pull/420/head", Hash: two.String()}},
		{gitref.Selector{Name: "refs/merge-requests/7/merge"}, Ref{Name: "refs/merge-requests/7/merge", Hash: three.String()}},
		{gitref.Selector{Commit: hash}, Ref{Name: hash, Hash: hash, Pinned: true}},
		{gitref.Selector{Commit: hash, Branch: "feature/x"}, Ref{Name: "refs/heads/feature/x", Hash: hash, Pinned: true}},
	} {
		if got, err := choose(t.Context(), adv, c.sel); err != nil || got != c.want {
			t.Errorf("%q: %+v, %v, want %+v", c.sel, got, err, c.want)
		}
	}
	for _, sel := range []gitref.Selector{{Branch: "main"}, {Tag: "v2"}, {SemVer: "9.x"}, {Name: "refs/pull/421/head"}, {Name: "refs/heads/trun"}} {
		if got, err := choose(t.Context(), adv, sel); KindOf(err) != BranchNotFound {
			t.Errorf("%q: %+v, %v", sel, got, err)
		}
	}
	if got, err := choose(t.Context(), packp.NewAdvRefs(), gitref.Selector{}); KindOf(err) != Empty {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
}

func TestShortNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"refs/heads/a/b": "a/b", "refs/tags/v1": "v1", "refs/pull/1/head": "refs/pull/1/head", "abc": "abc"} {
		if got := (Ref{Name: name}).Short(); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestChooseEnds: a look through many tags ends with its context.
func TestChooseEnds(t *testing.T) {
	t.Parallel()
	adv := packp.NewAdvRefs()
	adv.References["refs/tags/v1.0.0"] = pack.ID{1}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := choose(ctx, adv, gitref.Selector{SemVer: "*"}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	for tag := range tagNames(ctx, adv) {
		t.Errorf("%s is looked at", tag)
	}
}

// FuzzAdvertisement: whatever a server tells of its refs, what is chosen is one of
// them, or an error.
func FuzzAdvertisement(f *testing.F) {
	adv := packp.NewAdvRefs()
	adv.Capabilities.Add(capability.SymRef, "HEAD:refs/heads/main")
	adv.Head = &pack.ID{1}
	adv.References = map[string]pack.ID{"refs/heads/main": {1}, "refs/tags/v1.0.0": {2}, "refs/pull/1/head": {3}}
	adv.Peeled = map[string]pack.ID{"refs/tags/v1.0.0": {4}}
	var seed bytes.Buffer
	if err := adv.Encode(&seed); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add(bytes.ReplaceAll(seed.Bytes(), []byte("refs/heads/main"), []byte("refs/heads/../x")))
	f.Add([]byte("0000"))
	f.Fuzz(func(t *testing.T, data []byte) {
		adv := packp.NewAdvRefs()
		if adv.Decode(bytes.NewReader(data)) != nil {
			return
		}
		for _, sel := range []gitref.Selector{{}, {Branch: "main"}, {Tag: "v1.0.0"}, {SemVer: "*"}, {SemVer: ">=0.0.0-0", TagPrefix: "v"}, {Name: "refs/pull/1/head"}} {
			ref, err := choose(t.Context(), adv, sel)
			if err != nil {
				if KindOf(err) != BranchNotFound && KindOf(err) != Empty {
					t.Fatalf("%q: %v", sel, err)
				}
				continue
			}
			id, there := adv.References[ref.Name]
			if !there || ref.Hash != id.String() && ref.Tag != id.String() {
				t.Fatalf("%q: %+v is not told", sel, ref)
			}
		}
	})
}
