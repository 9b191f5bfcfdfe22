package commit

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/worker/checkout"
)

// The default author and committer of commits. Source: Grafana.
const (
	defaultName = "Grafana"
	defaultMail = "noreply@grafana.com"
)

// newCommit creates the commit, signed if there is a key.
func (r *Run) newCommit(ctx context.Context, made *git.Composition) (*git.NewCommit, error) {
	repo := r.Task.Repository
	if repo.Spec.Type == "local" {
		return made.Directory(), nil
	}
	author, committer := people(repo.Spec.Commit)
	m := git.CommitOptions{
		Author:    author,
		Committer: committer,
		When:      time.Unix(r.Saved.When, 0),
		Message:   cmp.Or(strings.TrimSpace(r.Task.Job.Spec.Message), r.Order.Message),
	}
	now := r.writer.Source.Now()
	key, _, err := checkout.SigningKey(ctx, r.writer.Keys, r.Checkout.Lookup, repo, now)
	if err != nil {
		return nil, fmt.Errorf("sign commit: %w", err)
	}
	if key != nil {
		m.Signer = key
	}
	// A commit that no pull accepts must not block the pulls after it.
	if trust := r.Checkout.Trust; r.branch() == r.Own.Name && trust != nil {
		if err := trust.Takes(key, committer.Mail, now); err != nil {
			return nil, fmt.Errorf("nothing was pushed: %w", err)
		}
	}
	return made.Commit(m)
}

// people returns the author and the committer of the commits of a Repository. The signer is the
// committer.
func people(c *api.CommitSpec) (author, committer git.Person) {
	author = git.Person{Name: defaultName, Mail: defaultMail}
	committer = author
	if c == nil {
		return author, committer
	}
	committer = git.Person{Name: cmp.Or(c.SignerName, defaultName), Mail: cmp.Or(c.SignerEmail, defaultMail)}
	author = git.Person{Name: cmp.Or(c.AuthorName, defaultName), Mail: cmp.Or(c.AuthorEmail, defaultMail)}
	if c.SignerIsAuthor {
		author = committer
	}
	return author, committer
}
