package forge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"limpet/sync/netx"
	"limpet/sync/text"
)

// CommitState is the state of the status of a commit.
type CommitState string

// The states that all hosts have.
const (
	CommitPending CommitState = "pending"
	CommitSuccess CommitState = "success"
	CommitFailure CommitState = "failure"
)

// CommitStatus is the result of a check of a commit. The latest one of a Context counts.
type CommitStatus struct {
	Context string      `json:"context"` // name of the check
	State   CommitState `json:"state"`
	Text    string      `json:"text"`
	URL     string      `json:"url,omitempty"` // page about it; "" = none
}

// SetStatus writes the status of a commit. Its text is cut to what the host takes.
func (r *Remote) SetStatus(ctx context.Context, commit string, s CommitStatus) error {
	s.Text = text.Line(s.Text, r.statusText-len("…"))
	path, body := r.status(r.place, commit, s)
	set := r.request("set commit status of", http.MethodPost, path)
	set.body = body
	_, err := r.caller.do(ctx, set)
	// GitLab refuses the state that the commit has already.
	if netx.KindOf(err) == netx.Refused && strings.Contains(err.Error(), "Cannot transition status") {
		return nil
	}
	return err
}

// contextStatus is the form of GitHub, Gitea and GitLab.
func contextStatus(_ Place, commit string, s CommitStatus) (string, any) {
	body := map[string]any{"context": s.Context, "state": s.State, "description": s.Text}
	if s.URL != "" {
		body["target_url"] = s.URL
	}
	return "/statuses/" + commit, body
}

func gitlabStatus(p Place, commit string, s CommitStatus) (string, any) {
	if s.State == CommitFailure {
		s.State = "failed"
	}
	return contextStatus(p, commit, s)
}

// bitbucketStatus has a page always: the host requires one, and a key of at most 40 bytes.
func bitbucketStatus(p Place, commit string, s CommitStatus) (string, any) {
	key := s.Context
	if len(key) > 40 {
		sum := sha256.Sum256([]byte(key))
		key = key[:31] + "-" + hex.EncodeToString(sum[:4])
	}
	states := map[CommitState]string{CommitPending: "INPROGRESS", CommitSuccess: "SUCCESSFUL", CommitFailure: "FAILED"}
	return "/commit/" + commit + "/statuses/build", map[string]any{"key": key, "name": s.Context, "state": states[s.State],
		"description": s.Text, "url": cmp.Or(s.URL, "https://bitbucket.org/"+segments(p.Path)+"/commits/"+commit)}
}

// PullRequest is a pull request, which GitLab calls a merge request.
type PullRequest struct {
	Open   bool
	Fork   bool   // its branch is in another repository
	Branch string // "" = it is gone
	Head   string // commit of the branch; Bitbucket cuts it to 12 digits
	Base   string // branch that it goes to
	URL    string // page, http or https; "" = unknown

	base string // commit where the branch has left Base, where the host says it here
}

// pullWire is a pull request in the forms of all hosts.
type pullWire struct {
	State string `json:"state"` // open, opened, OPEN
	Page  string `json:"html_url"`

	Head, Base struct { // of GitHub and Gitea
		Ref  string
		SHA  string
		Repo *struct{ ID int64 }
	}

	WebPage      string `json:"web_url"` // of GitLab
	SHA          string `json:"sha"`
	SourceBranch string `json:"source_branch"`
	TargetBranch string `json:"target_branch"`
	Source       int64  `json:"source_project_id"`
	Target       int64  `json:"target_project_id"`
	Diff         struct {
		Base string `json:"base_sha"`
	} `json:"diff_refs"`
	MergeBase string `json:"merge_base"` // of Gitea

	Links struct { // of Bitbucket
		HTML struct{ Href string }
	}
	From bitbucketEnd `json:"source"`
	To   bitbucketEnd `json:"destination"`
}

type bitbucketEnd struct {
	Branch     struct{ Name string }
	Commit     struct{ Hash string }
	Repository *struct{ UUID string }
}

// PullRequest reads a pull request by its number.
func (r *Remote) PullRequest(ctx context.Context, number int64) (PullRequest, error) {
	w, err := ask[pullWire](ctx, r.caller, r.request("read pull request of", http.MethodGet, fmt.Sprintf(r.pulls.pull, number)))
	if err != nil {
		return PullRequest{}, err
	}
	p := PullRequest{Open: strings.HasPrefix(strings.ToLower(w.State), "open"), URL: cmp.Or(w.Page, w.WebPage, w.Links.HTML.Href),
		base: cmp.Or(w.MergeBase, w.Diff.Base)}
	switch r.place.Kind {
	case GitLab:
		p.Fork, p.Branch, p.Head, p.Base = w.Source != w.Target, w.SourceBranch, w.SHA, w.TargetBranch
	case Bitbucket:
		p.Fork = w.From.Repository == nil || w.To.Repository != nil && w.From.Repository.UUID != w.To.Repository.UUID
		p.Branch, p.Head, p.Base = w.From.Branch.Name, w.From.Commit.Hash, w.To.Branch.Name
	default:
		p.Fork = w.Head.Repo == nil || w.Base.Repo != nil && w.Head.Repo.ID != w.Base.Repo.ID
		p.Branch, p.Head, p.Base = w.Head.Ref, w.Head.SHA, w.Base.Ref
	}
	if !strings.HasPrefix(p.URL, "https://") && !strings.HasPrefix(p.URL, "http://") {
		p.URL = ""
	}
	return p, nil
}

// MergeBase returns the commit where the head of a pull request has left the branch that it goes
// to, whose tip is given.
func (r *Remote) MergeBase(ctx context.Context, p PullRequest, tip, head string) (string, error) {
	base := p.base
	if r.pulls.base != "" {
		find := r.request("find the merge base of", http.MethodGet, fmt.Sprintf(r.pulls.base, tip, head))
		find.query = url.Values{"per_page": {"1"}, "page": {"2"}} // GitHub lists commits and files on the first page
		found, err := ask[struct {
			GitHub    struct{ SHA string } `json:"merge_base_commit"`
			Bitbucket string               `json:"hash"`
		}](ctx, r.caller, find)
		if err != nil {
			return "", err
		}
		base = cmp.Or(found.GitHub.SHA, found.Bitbucket)
	}
	if !isCommit(base) {
		return "", fmt.Errorf("the host knows no commit that pull request and %s have in common", p.Base)
	}
	return base, nil
}

// PullRefs returns the refs that the host keeps for a pull request in the repository: of its head,
// and of its merge with the branch that it goes to. "" = the host has none.
func (r *Remote) PullRefs(number int64) (head, merge string) {
	if r.pulls.refs == "" {
		return "", ""
	}
	refs := fmt.Sprintf(r.pulls.refs, number)
	return refs + "head", refs + "merge"
}

// commentWire is a comment in the forms of all hosts.
type commentWire struct {
	ID      json.Number `json:"id"`
	Body    string      `json:"body"`
	Content struct {    // of Bitbucket
		Raw string `json:"raw"`
	} `json:"content"`
}

func (c commentWire) text() string { return strings.TrimSpace(cmp.Or(c.Body, c.Content.Raw)) }

// Comment makes the comment on a pull request that begins with a hidden marker, or edits the one
// that is there; with onlyEdit it makes none. A comment that was made before a power cut is found
// again.
func (r *Remote) Comment(ctx context.Context, number int64, marker, text string, onlyEdit bool) error {
	marker = fmt.Sprintf(r.marker, marker)
	text = strings.TrimSpace(marker + "\n\n" + text)
	path := fmt.Sprintf(r.pulls.comments, number)
	var found []commentWire
	err := r.pages(ctx, r.request("list comments of", http.MethodGet, path), func(data json.RawMessage) error {
		var c commentWire
		err := json.Unmarshal(data, &c)
		if first, _, _ := strings.Cut(c.text(), "\n"); err == nil && strings.TrimSpace(first) == marker {
			found = append(found, c)
		}
		return err
	})
	if err != nil {
		return err
	}
	write := r.request("comment on a pull request of", http.MethodPost, path)
	if write.body = map[string]any{"body": text}; r.place.Kind == Bitbucket {
		write.body = map[string]any{"content": map[string]any{"raw": text}}
	}
	if slices.ContainsFunc(found, func(c commentWire) bool { return c.text() == text }) {
		return nil
	}
	for _, c := range found {
		edit := write
		edit.method, edit.path = r.change, r.root(r.place)+fmt.Sprintf(r.pulls.comment, number, c.ID)
		_, err := r.caller.do(ctx, edit)
		if kind := netx.KindOf(err); kind != netx.Forbidden && kind != netx.NotFound { // else another has written it, or it is gone
			return err
		}
	}
	if onlyEdit {
		return nil
	}
	_, err = r.caller.do(ctx, write)
	return err
}

// Refuses reports whether an error is an answer of the host that a repetition does not change: it
// lacks a right, the repository, or an API that is known here.
func Refuses(err error) bool {
	switch netx.KindOf(err) {
	case netx.Unauthorized, netx.Forbidden, netx.NotFound, netx.Refused, netx.Invalid:
		return true
	}
	return errors.Is(err, ErrNone)
}
