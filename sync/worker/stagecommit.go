package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/worker/checkout"
)

// The default author and committer of commits. Source: Grafana.
const (
	defaultName = "Grafana"
	defaultMail = "noreply@grafana.com"
)

// commit creates the commit, signed if there is a key.
func (r *staging) commit(ctx context.Context, made *git.Composition) (*git.Written, error) {
	if r.Repository.Spec.Type == "local" {
		return made.Directory(), nil
	}
	author, committer := people(r.Repository.Spec.Commit)
	m := git.Making{Author: author, Committer: committer, When: time.Unix(r.note.When, 0),
		Message: cmp.Or(strings.TrimSpace(r.Job.Spec.Message), r.order.message)}
	now := r.o.Client.Now()
	key, _, err := checkout.SigningKey(ctx, r.keys, r.at.Lookup, r.Repository, now)
	if err != nil {
		return nil, fmt.Errorf("sign commit: %w", err)
	}
	if key != nil {
		m.Signer = key
	}
	// A commit that no pull accepts must not block the pulls after it.
	if r.branch() == r.own.Name && r.at.Trust != nil {
		if err := r.at.Trust.Takes(key, committer.Mail, now); err != nil {
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

// refURLs returns the web pages of a branch at its host, with the one that opens a pull request.
// They are known for the types of hosting services only.
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

// The validation of a job that writes. It needs no request.

func (r *staging) check() error {
	switch {
	case r.Repository.GitRef != "":
		return fmt.Errorf("repository %q has the annotation %s, so it is only read", r.Repo.GetName(), api.AnnoGitRef)
	case len(r.Repository.Spec.Workflows) == 0:
		return fmt.Errorf("repository %q has no spec.workflows, so it is only read; try: limpet repo set %s --workflows write --namespace %s",
			r.Repo.GetName(), r.Repo.GetName(), r.Namespace)
	case r.order.ref == "":
		return r.mayWrite("write")
	}
	return nil
}

// checkRef validates the name of a branch in an option of the job.
func checkRef(t *jobs.Task, option, ref string) error {
	if err := auth.CheckRefName(ref); ref != "" && err != nil {
		return fmt.Errorf("spec.%s.%s: %w", t.Job.Spec.Action, option, err)
	}
	return nil
}

// checkSelection validates the options of a job that names what it changes.
func checkSelection(t *jobs.Task, o *api.SelectionOptions) error {
	switch {
	case o == nil:
		return fmt.Errorf("the job has no options: spec.%s is missing", t.Job.Spec.Action)
	case len(o.Paths)+len(o.Resources) == 0:
		return fmt.Errorf("spec.%s names no path and no resource", t.Job.Spec.Action)
	}
	for _, path := range o.Paths {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	return checkRef(t, "ref", o.Ref)
}

// checkPath returns an error for a path outside of the directory of the Repository, and for the
// directory itself.
func checkPath(path string) error {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		return errors.New("a path is empty; the whole repository is never meant")
	}
	return repopath.CheckPath(path)
}

// mayWrite returns an error unless the Repository permits a workflow: "write" to its own branch,
// "branch" to others.
func (r *staging) mayWrite(workflow string) error {
	if slices.Contains(r.Repository.Spec.Workflows, workflow) {
		return nil
	}
	own := "its own branch"
	if workflow == "branch" {
		own = "other branches"
	}
	return fmt.Errorf("repository %q may not be written to on %s: spec.workflows lacks %q", r.Repo.GetName(), own, workflow)
}

// selected returns one edit for each path of the job and of its resources, which are looked up
// once. It omits a path inside a directory that is also listed.
func (r *staging) selected(ctx context.Context, o *api.SelectionOptions, action resources.Action,
	to func(path string) string) (edits []edit, err error) {
	if r.note.Paths == nil {
		if r.note.Paths, err = r.paths(ctx, o, action); err != nil {
			return nil, err
		}
	}
	for _, path := range r.note.Paths {
		e := edit{file: git.Edit{Path: within(r.at.Dir, path)}, result: resources.Result{Action: action, Path: path}}
		if to != nil {
			e.file.To = within(r.at.Dir, to(path))
		}
		edits = append(edits, e)
	}
	return edits, nil
}

func (r *staging) paths(ctx context.Context, o *api.SelectionOptions, action resources.Action) ([]string, error) {
	var all []string
	for _, path := range o.Paths {
		all = append(all, strings.TrimPrefix(path, "/"))
	}
	if len(o.Resources) > 0 {
		r.Progress.SetMessage(ctx, "find the files of the resources")
	}
	for _, ref := range o.Resources {
		path, err := r.locate(ctx, ref)
		if jobs.Transient(err) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			err = fmt.Errorf("find the file of %s %s: %w", ref.Kind, ref.Name, err)
			r.Progress.Record(ctx, resources.Result{Action: action, Group: ref.Group, Kind: ref.Kind, Name: ref.Name, Err: err})
			return nil, err
		}
		all = append(all, path)
	}
	out := []string{}
	for _, path := range all {
		covered := slices.ContainsFunc(all, func(dir string) bool {
			return dir != path && repopath.IsDir(dir) && strings.HasPrefix(path, dir)
		})
		if !covered && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out, nil
}

// locate returns the file or the directory that an object was created from.
func (r *staging) locate(ctx context.Context, ref api.ResourceRef) (string, error) {
	server, err := r.server(ctx, r.Namespace, r.Last)
	if err != nil {
		return "", err
	}
	kind := server.kinds.Of(ref.Group, ref.Kind)
	if i := slices.IndexFunc(server.kinds, func(k resources.Kind) bool { return k.Kind == ref.Kind }); ref.Group == "" && i >= 0 {
		kind = server.kinds[i]
	}
	if kind.Refused != "" {
		return "", fmt.Errorf("kind %s is %s", ref.Kind, kind.Refused)
	}
	what := resources.Ref{Group: kind.Group, Resource: kind.Resource, Name: ref.Name}
	live, err := server.Get(ctx, what, false)
	switch {
	case apierrors.IsNotFound(err):
		return "", errors.New("there is no such object")
	case err != nil:
		return "", err
	case !resources.Manages(r.Repo.GetName(), live.Annotations):
		return "", fmt.Errorf("it does not belong to repository %q", r.Repo.GetName())
	}
	path := live.Annotations[api.AnnoSourcePath]
	if what.Group == api.FolderGroup && path != "" {
		path = repopath.AsDir(path)
	}
	return path, checkPath(path)
}

// NewDelete returns the worker of delete jobs, which remove files and directories from the branch
// of a Repository or from another one. p pulls the changes afterwards; keys may be nil.
func NewDelete(p *Pull, keys auth.Source) *Write {
	return &Write{p, keys, "delete", func(t *jobs.Task) (order, error) {
		o := t.Job.Spec.Delete
		if err := checkSelection(t, o); err != nil {
			return order{}, err
		}
		return order{o.Ref, "Delete from Grafana " + t.Name, func(ctx context.Context, r *staging) ([]edit, error) {
			return r.selected(ctx, o, resources.Deleted, nil)
		}, pullAfter}, nil
	}}
}

// within converts a path relative to the directory of a Repository to one relative to the root of
// its Git repository.
func within(dir, path string) string {
	if dir == "" {
		return path
	}
	return dir + "/" + path
}

// NewMove returns the worker of move jobs, which move files and directories to another directory of
// a Repository and keep their names.
func NewMove(p *Pull, keys auth.Source) *Write {
	return &Write{p, keys, "move", func(t *jobs.Task) (order, error) {
		o := t.Job.Spec.Move
		if err := checkSelection(t, o); err != nil {
			return order{}, err
		}
		target := strings.TrimPrefix(o.TargetPath, "/")
		if o.TargetPath == "" || !repopath.IsDir(target) {
			return order{}, fmt.Errorf("spec.move.targetPath is %q: it has to be a directory, with a slash at its end", o.TargetPath)
		}
		if err := repopath.CheckPath(target); err != nil {
			return order{}, fmt.Errorf("spec.move.targetPath: %w", err)
		}
		to := func(path string) string {
			if repopath.IsDir(path) {
				return target + repopath.Base(path) + "/"
			}
			return target + repopath.Base(path)
		}
		return order{o.Ref, "Move files from Grafana " + t.Name, func(ctx context.Context, r *staging) ([]edit, error) {
			return r.selected(ctx, o, resources.Renamed, to)
		}, pullAfter}, nil
	}}
}
