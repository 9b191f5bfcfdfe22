package worker

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/git"
)

// By whom commits are that nobody says anything else of. Source: Grafana.
const (
	defaultName = "Grafana"
	defaultMail = "noreply@grafana.com"
)

// commit makes the commit, signed where there is a key.
func (r *staging) commit(ctx context.Context, made *git.Composition) (*git.Written, error) {
	author, committer := people(r.Repository.Spec.Commit)
	m := git.Making{Author: author, Committer: committer, When: time.Unix(r.note.When, 0),
		Message: cmp.Or(strings.TrimSpace(r.Job.Spec.Message), r.order.message+" "+r.Name)}
	key, _, err := r.keys.Key(ctx, r.src.lookup, r.Repository, r.now())
	if err != nil {
		return nil, fmt.Errorf("sign commit: %w", err)
	}
	if key != nil {
		m.Signer = key
	}
	// What no pull would take must not be in the way of those that come after it.
	if r.order.Ref == "" && r.trust != nil {
		if err := r.trust.takes(key, committer.Mail, r.now()); err != nil {
			return nil, fmt.Errorf("nothing was pushed: %w", err)
		}
	}
	return made.Commit(m)
}

// people are author and committer of the commits of a Repository. Who signs is the
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

// refURLs are the pages of a branch at its host, with the one where it is asked to be
// merged into another. Hosts that are known by their type alone have such pages.
func refURLs(repo api.Repository, own, ref string) map[string]string {
	block := repo.Spec.Block()
	if block == nil {
		return nil
	}
	at, err := url.Parse(strings.TrimSuffix(strings.TrimSuffix(block.URL, "/"), ".git"))
	if err != nil || at.Scheme != "https" && at.Scheme != "http" {
		return nil
	}
	at.User = nil
	own = cmp.Or(block.Branch, own)
	page, to, from := at.String(), url.PathEscape(own), url.PathEscape(ref)
	to, from = strings.ReplaceAll(to, "%2F", "/"), strings.ReplaceAll(from, "%2F", "/")
	urls := map[string]string{"repositoryURL": page}
	switch repo.Spec.Type {
	case "github", "githubEnterprise":
		urls["sourceURL"] = page + "/tree/" + from
		urls["compareURL"] = page + "/compare/" + to + "..." + from
		urls["newPullRequestURL"] = urls["compareURL"] + "?quick_pull=1&labels=grafana"
	case "gitlab":
		urls["sourceURL"] = page + "/-/tree/" + from
		urls["compareURL"] = page + "/-/compare/" + to + "..." + from
		urls["newPullRequestURL"] = page + "/-/merge_requests/new?" + url.Values{"merge_request[source_branch]": {ref}, "merge_request[target_branch]": {own}}.Encode()
	case "bitbucket":
		urls["sourceURL"] = page + "/src/" + from
		urls["compareURL"] = page + "/branches/compare/" + from + ".." + to
		urls["newPullRequestURL"] = page + "/pull-requests/new?" + url.Values{"source": {ref}, "dest": {own}}.Encode()
	}
	if ref == own || own == "" {
		delete(urls, "compareURL")
		delete(urls, "newPullRequestURL")
	}
	return urls
}
