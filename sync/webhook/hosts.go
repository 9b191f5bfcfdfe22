package webhook

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxListedGitHub is how many commits GitHub puts into the payload of a push at
// most. Source: its documentation of the event push, "The maximum is 2048".
const maxListedGitHub = 2048

// delivery is what is read of the payloads of all hosts. Source: the pages of GitHub and
// Gitea about webhook payloads, GitLab's "Webhook events", Bitbucket's "Event payloads".
type delivery struct {
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Project struct { // GitLab's
		Path string `json:"path_with_namespace"`
	} `json:"project"`

	// A push of GitHub, Gitea and GitLab. The last two count all commits and list some.
	Ref     string `json:"ref"`
	Created bool   `json:"created"`
	Forced  bool   `json:"forced"`
	Commits []struct {
		Added    []string `json:"added"`
		Removed  []string `json:"removed"`
		Modified []string `json:"modified"`
	} `json:"commits"`
	TotalGitea  int `json:"total_commits"`
	TotalGitLab int `json:"total_commits_count"`

	// A push of Bitbucket, which lists branches and commits, but no paths.
	Push struct {
		Changes []struct {
			New bitbucketRef `json:"new"`
			Old bitbucketRef `json:"old"`
		} `json:"changes"`
	} `json:"push"`

	// A pull request of GitHub and Gitea, of GitLab, of Bitbucket.
	Action      string `json:"action"`
	Number      int64  `json:"number"`
	PullRequest struct {
		HTMLURL string     `json:"html_url"`
		Base    gitHubSide `json:"base"`
		Head    gitHubSide `json:"head"`
	} `json:"pull_request"`
	MergeRequest struct {
		IID        int64  `json:"iid"`
		URL        string `json:"url"`
		Action     string `json:"action"`
		OldRev     string `json:"oldrev"` // set when an update has moved the head
		Source     string `json:"source_branch"`
		Target     string `json:"target_branch"`
		LastCommit struct {
			ID string `json:"id"`
		} `json:"last_commit"`
	} `json:"object_attributes"`
	Bitbucket struct {
		ID    int64 `json:"id"`
		Links struct {
			HTML struct {
				Href string `json:"href"`
			} `json:"html"`
		} `json:"links"`
		Source      bitbucketSide `json:"source"`
		Destination bitbucketSide `json:"destination"`
	} `json:"pullrequest"`
}

type gitHubSide struct {
	Ref string `json:"ref"`
	SHA string `json:"sha"`
}

type bitbucketRef struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type bitbucketSide struct {
	Branch struct {
		Name string `json:"name"`
	} `json:"branch"`
	Commit struct {
		Hash string `json:"hash"`
	} `json:"commit"`
}

// kinds are the events that are understood, by their names.
var kinds = map[Host]map[string]Kind{
	GitHub:    {"ping": Ping, "push": Push, "pull_request": PullRequest},
	Gitea:     {"ping": Ping, "push": Push, "pull_request": PullRequest},
	GitLab:    {"Push Hook": Push, "Tag Push Hook": Push, "Merge Request Hook": PullRequest},
	Bitbucket: {"repo:push": Push}, // and bitbucketPull with any action
}

const bitbucketPull = "pullrequest:"

func kindOf(host Host, name string) Kind {
	if kind, ok := kinds[host][name]; ok {
		return kind
	}
	if host == Bitbucket && strings.HasPrefix(name, bitbucketPull) {
		return PullRequest
	}
	return Other
}

func (d *delivery) push(e *Event) {
	if e.Host == Bitbucket {
		e.Partial = true
		for _, c := range d.Push.Changes {
			for _, ref := range []bitbucketRef{c.New, c.Old} {
				if ref.Type == "branch" && ref.Name != "" {
					e.Branches = append(e.Branches, ref.Name)
					break
				}
			}
		}
		return
	}
	if branch, ok := strings.CutPrefix(d.Ref, "refs/heads/"); ok && branch != "" {
		e.Branches = []string{branch}
	}
	// The commits of a forced push and of a new branch do not begin at what was pulled last.
	e.Partial = d.Forced || d.Created || len(d.Commits) >= maxListedGitHub || max(d.TotalGitea, d.TotalGitLab) > len(d.Commits)
	for _, c := range d.Commits {
		e.Deleted = append(e.Deleted, c.Removed...)
		e.Changes += len(c.Added) + len(c.Removed) + len(c.Modified)
	}
}

// pullRequest reads the event of a pull request. Bitbucket's payload does not say whether
// an update is of the head or of the text.
func (d *delivery) pullRequest(e *Event) {
	switch e.Host {
	case GitLab:
		m := d.MergeRequest
		e.Action, e.Number, e.URL, e.Branches, e.HeadRef, e.Head = m.Action, m.IID, m.URL, []string{m.Target}, m.Source, m.LastCommit.ID
		if m.Action == "update" && m.OldRev == "" {
			return
		}
	case Bitbucket:
		b := d.Bitbucket
		e.Action = strings.TrimPrefix(e.Name, bitbucketPull)
		e.Number, e.URL, e.Branches = b.ID, b.Links.HTML.Href, []string{b.Destination.Branch.Name}
		e.HeadRef, e.Head = b.Source.Branch.Name, b.Source.Commit.Hash
	default:
		p := d.PullRequest
		e.Action, e.Number, e.URL, e.Branches, e.HeadRef, e.Head = d.Action, d.Number, p.HTMLURL, []string{p.Base.Ref}, p.Head.Ref, p.Head.SHA
	}
	if ours, ok := actions[e.Host][e.Action]; ok {
		e.Action = ours
	}
}

// actions are the words of hosts for the actions that are worked on.
var actions = map[Host]map[string]string{
	Gitea:     {"synchronized": Updated},
	GitLab:    {"open": Opened, "reopen": Reopened, "update": Updated},
	Bitbucket: {"created": Opened, "updated": Updated},
}

// signedWindow is how far the time that a signature covers may be from now.
// Source: the Standard Webhooks specification, which GitLab's signed form follows.
const signedWindow = 5 * time.Minute

// standardPrefix marks the secret of GitLab's signed form: base64 of the key
// follows. Source: GitLab's webhook API, signing_token.
const standardPrefix = "whsec_"

// proof is what the headers of a request offer as proof that its sender knows the secret. One of
// mac and token is set.
type proof struct {
	mac    []byte // HMAC-SHA256
	token  string
	signed *signedHead // GitLab's signed form, nil = the MAC covers the body alone
	id     string      // of the delivery, as far as the secret vouches for it
}

// signedHead is what GitLab's signed form covers besides the body.
type signedHead struct {
	id, timestamp string
	macs          [][]byte // any of them
}

// proofOf reads the proof that a host sends; false when there is none.
func proofOf(host Host, h http.Header) (proof, bool) {
	switch host {
	case GitHub:
		return hubProof(h.Get("X-Hub-Signature-256"))
	case Gitea:
		if text := cmp.Or(h.Get("X-Forgejo-Signature"), h.Get("X-Gitea-Signature")); text != "" {
			return macProof(text)
		}
		return hubProof(h.Get("X-Hub-Signature-256"))
	case Bitbucket:
		return hubProof(h.Get("X-Hub-Signature"))
	case GitLab:
		// Which of token and signature counts is decided by the form of the secret.
		p := proof{token: h.Get("X-Gitlab-Token"), id: cmp.Or(h.Get("Idempotency-Key"), h.Get("X-Gitlab-Event-Uuid"))}
		if text := h.Get("Webhook-Signature"); text != "" && len(text) <= 4096 {
			s := signedHead{id: h.Get("Webhook-Id"), timestamp: h.Get("Webhook-Timestamp")}
			for _, one := range strings.Fields(text) {
				if text, ok := strings.CutPrefix(one, "v1,"); ok {
					if mac, err := base64.StdEncoding.DecodeString(text); err == nil && len(mac) == sha256.Size {
						s.macs = append(s.macs, mac)
					}
				}
			}
			if len(s.macs) > 0 && s.id != "" {
				p.signed = &s
			}
		}
		return p, p.token != "" || p.signed != nil
	}
	return proof{}, false
}

// hubProof reads the form of GitHub. The older one, of SHA-1, does not count.
func hubProof(text string) (proof, bool) {
	text, ok := strings.CutPrefix(text, "sha256=")
	if !ok {
		return proof{}, false
	}
	return macProof(text)
}

func macProof(text string) (proof, bool) {
	mac, err := hex.DecodeString(text)
	return proof{mac: mac}, err == nil && len(mac) == sha256.Size
}

// proves reports whether the sender knows the secret. It takes the same time for every wrong proof
// of one length. now is zero when the time is unknown; then it ignores the age of a signature.
func (p proof) proves(secret []byte, b []byte, now time.Time) bool {
	if len(secret) == 0 {
		return false
	}
	if p.mac != nil {
		mac := hmac.New(sha256.New, secret)
		mac.Write(b)
		return hmac.Equal(mac.Sum(nil), p.mac)
	}
	if coded, ok := strings.CutPrefix(string(secret), standardPrefix); ok {
		key, err := base64.StdEncoding.DecodeString(coded)
		return err == nil && p.signed != nil && p.signed.proves(key, b, now)
	}
	want, got := sha256.Sum256(secret), sha256.Sum256([]byte(p.token))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

func (s *signedHead) proves(key []byte, b []byte, now time.Time) bool {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(s.id + "." + s.timestamp + "."))
	mac.Write(b)
	want, right := mac.Sum(nil), 0
	for _, got := range s.macs {
		right |= subtle.ConstantTimeCompare(want, got)
	}
	seconds, err := strconv.ParseInt(s.timestamp, 10, 64)
	fresh := err == nil && (now.IsZero() || now.Sub(time.Unix(seconds, 0)).Abs() <= signedWindow)
	return right == 1 && fresh
}

// digest names a delivery for the memory of those that were served.
type digest [16]byte

// digest is the same for the same content whatever header carried its proof, so
// that a copy of a delivery is known again without its stronger signature.
func (p proof) digest(secret []byte, repository string, b []byte) digest {
	mac := hmac.New(sha256.New, secret)
	id := p.id
	if p.signed != nil {
		id = p.signed.id
	}
	mac.Write([]byte(repository + "\x00" + id + "\x00"))
	mac.Write(b)
	return digest(mac.Sum(nil)[:16])
}

// noSecret stands in for the secret of a Repository that is not there or has none,
// so that its requests take the same way as forged ones.
var noSecret = []byte(rand.Text() + rand.Text())
