// Package checkout finds and reads the commit of a Repository: its remote with credentials, the
// commit of a ref, whose signatures are verified, and the files of its tree. It writes to the
// mirror alone, and knows neither jobs nor targets.
package checkout

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/failpoint"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/git/transfer"
	"limpet/sync/text"
)

// Source opens the checkouts of an agent.
type Source struct {
	Git         Git
	Credentials auth.Source // nil = none
	Signers     *Signers    // the signature policies and their keys; nil = no keys
	// AllowInsecure lets credentials travel over plain http.
	AllowInsecure bool
	Now           func() time.Time // the time of the API
}

// Progress shows the steps of a checkout.
type Progress interface {
	Step(text string)
	StepNote(note string)
	SetMessage(ctx context.Context, text string)
	SetRefs(branch, from, to string)
	SetCommit(c state.Commit)
}

// Options are those of one checkout.
type Options struct {
	// Mirrors permits the mirrors of the Repository: a commit is neither pushed to one nor based on
	// one.
	Mirrors  bool
	Last     string // the commit of the last pull, for Progress; "" = none
	Progress Progress
	Meter    *transfer.Meter // counts what comes from Git servers; nil = none
	Log      *slog.Logger
}

// Checkout is a commit of a Repository. Its Selector is that of the Repository until a caller sets
// another one.
type Checkout struct {
	Remote   git.Remote
	Selector gitref.Selector
	Dir      string         // spec.path
	Lookup   auth.Lookup    // of credentials
	Ref      git.Ref        // of the last LookUp
	Trust    *Trust         // of the last ReadTrust; nil = no policy
	Verified *api.Condition // for the status of the Repository; nil = unchanged

	source Source
	repo   *unstructured.Unstructured
	view   api.Repository
	o      Options
}

// Open finds the remote of a Repository and its credentials. It makes no request to a Git host.
func (s Source) Open(
	ctx context.Context, repo *unstructured.Unstructured, view api.Repository, o Options,
) (*Checkout, error) {
	c := &Checkout{source: s, repo: repo, view: view, o: o}
	src, err := c.open(ctx)
	c.Selector = src.sel
	c.Dir = src.dir
	c.Lookup = src.lookup
	return c, err
}

func (c *Checkout) open(ctx context.Context) (source, error) {
	namespace, name := c.repo.GetNamespace(), c.repo.GetName()
	src, err := sourceOf(namespace, name, c.view)
	if err = cmp.Or(err, src.wrong); err != nil {
		return src, err
	}
	if !c.o.Mirrors {
		src.mirrors = nil
	}
	remote, err := src.remote(ctx, c.source.Credentials, c.source.AllowInsecure)
	if err != nil {
		return src, err
	}
	remote.Meter = c.o.Meter
	remote.Demands = c.source.Signers.Submodules(namespace, name, c.source.Now, append([]string{src.url}, src.mirrors...)...)
	c.Remote = remote
	return src, nil
}

// CheckCredentials returns an error if this agent has no credentials for a Repository.
func (s Source) CheckCredentials(ctx context.Context, repo *unstructured.Unstructured, view api.Repository) error {
	src, err := sourceOf(repo.GetNamespace(), repo.GetName(), view)
	if err != nil {
		return err
	}
	_, err = src.credentials(ctx, s.Credentials)
	return err
}

// Resolve asks the host for the commit of a ref, with new credentials if it rejects the cached
// ones: a token may have been revoked.
func (c *Checkout) Resolve(ctx context.Context, sel gitref.Selector) (git.Ref, error) {
	ref, err := c.source.Git.Resolve(ctx, c.Remote, sel)
	if git.KindOf(err) == git.Auth && c.Remote.Creds != nil && c.Remote.Creds.Forget != nil {
		if _, err := c.open(ctx); err != nil {
			return ref, err
		}
		ref, err = c.source.Git.Resolve(ctx, c.Remote, sel)
	}
	return ref, err
}

// LookUp finds the commit of the Selector. It is the only request of a pull without changes; a
// commit that is selected by its hash needs none.
func (c *Checkout) LookUp(ctx context.Context) error {
	c.o.Progress.Step("look up " + c.Selector.String())
	ref, err := c.Resolve(ctx, c.Selector)
	if err != nil {
		return err
	}
	if via := ref.Via.String(); via != "" && via != c.Ref.Via.String() {
		c.o.Log.Warn(via, "step", "fetch")
	}
	c.Ref = ref
	c.o.Progress.SetRefs(ref.Short(), c.o.Last, ref.Hash)
	return nil
}

// fetchTries is the number of times a branch may move between its look-up and its fetch.
const fetchTries = 3

// Fetch brings the commit into the mirror. It looks the ref up again where that has moved.
func (c *Checkout) Fetch(ctx context.Context) error {
	var err error
	for range fetchTries {
		c.o.Progress.SetMessage(ctx, "fetch "+ShortHash(c.Ref.Hash))
		var stats git.Stats
		if stats, err = c.source.Git.Fetch(ctx, c.Remote, c.Ref); err == nil {
			c.fetched(ctx, stats)
			return failpoint.Pass(failpoint.Fetched)
		}
		if git.KindOf(err) != git.Moved {
			return err
		}
		if err := c.LookUp(ctx); err != nil {
			return err
		}
	}
	return err
}

// fetched shows what has come. The next steps read the commit too, so an error is theirs; that of a
// directory says nothing.
func (c *Checkout) fetched(ctx context.Context, stats git.Stats) {
	c.o.Log.Debug("fetched", "step", "fetch", "bytes", stats.Bytes, "full", stats.Full)
	if stats.Bytes > 0 {
		c.o.Progress.StepNote(text.Size(stats.Bytes))
	}
	info, err := c.source.Git.Commit(ctx, c.Remote, c.Ref.Hash)
	if err == nil && c.view.Spec.Type != "local" {
		name, _, _ := strings.Cut(info.Author, " <")
		c.o.Progress.SetCommit(state.Commit{Subject: text.Redact(info.Subject), Author: name, At: api.Time(info.When)})
	}
}

// Get fetches the commit of a ref.
func (c *Checkout) Get(ctx context.Context, sel gitref.Selector) (git.Ref, error) {
	c.Selector = sel
	if err := c.LookUp(ctx); err != nil {
		return c.Ref, err
	}
	err := c.Fetch(ctx)
	return c.Ref, err
}

// ReadTrust reads the signature policy of the Repository and its keys. With an error, Trust may
// have what can be read.
func (c *Checkout) ReadTrust(ctx context.Context) (err error) {
	c.Trust, err = c.source.Signers.Trust(ctx, c.view, c.Lookup)
	switch {
	case c.Trust != nil && err != nil:
		c.Verified = c.Trust.Condition(c.Ref, nil, err)
	case err == nil && c.Trust == nil:
		c.Verified = &api.Condition{Type: api.ConditionVerified} // no longer required: remove the condition
	}
	return err
}

// Verify verifies a fetched ref against all demands and returns its signatures.
func (c *Checkout) Verify(ctx context.Context, ref git.Ref) ([]git.Verified, error) {
	if c.Trust == nil {
		return nil, nil
	}
	return c.Trust.verify(ctx, c.source.Git, c.Remote, ref, c.source.Now())
}

// VerifyFetched verifies the fetched Ref. A pull does so after each fetch and before its plan, also
// without changes: keys may have been removed since. The digest of the policy is in Verified, so
// that the next check detects other keys or a recreated tag.
func (c *Checkout) VerifyFetched(ctx context.Context) error {
	if c.Trust == nil {
		return nil
	}
	c.o.Progress.SetMessage(ctx, "verify "+ShortHash(c.Ref.Hash))
	found, err := c.Verify(ctx, c.Ref)
	if err == nil || git.KindOf(err) == git.Unverified {
		c.Verified = c.Trust.Condition(c.Ref, found, err)
	}
	if err != nil {
		return err
	}
	return failpoint.Pass(failpoint.Verified)
}

// ShortHash returns the first digits of a hash, for users.
func ShortHash(hash string) string { return hash[:min(len(hash), 7)] }
