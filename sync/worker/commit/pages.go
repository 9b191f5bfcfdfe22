package commit

import (
	"cmp"
	"net/url"
	"strings"

	"limpet/sync/api"
)

// Link sets the pages of the branch.
func (r *Run) Link() {
	r.Task.Progress.SetURLs(pages(r.Task.Repository, r.Saved.Own, cmp.Or(r.Order.Ref, r.Saved.Own)))
	if r.Saved.Hash == "" {
		r.Task.Progress.SetFinalMessage("nothing to commit")
	}
}

// pages returns the web pages of a branch at its host, with the one that opens a pull request.
// They are known for the types of hosting services only.
func pages(repo api.Repository, own, ref string) map[string]string {
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
		query := url.Values{"merge_request[source_branch]": {ref}, "merge_request[target_branch]": {own}}
		urls["newPullRequestURL"] = page + "/-/merge_requests/new?" + query.Encode()
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
