package forge

import (
	"context"
	"net/http"
)

// bitbucket is a repository at Bitbucket Cloud. Source:
// developer.atlassian.com/cloud/bitbucket/rest, webhooks and repositories.
type bitbucket struct{ registry[bitbucketHook] }

func newBitbucket(c *caller, p Place) *bitbucket {
	return &bitbucket{registry[bitbucketHook]{caller: c, place: p, list: "/repositories/" + p.escaped() + "/hooks", size: "pagelen",
		change: http.MethodPut, read: bitbucketHook.hook, write: bitbucketForm}}
}

func (b *bitbucket) events() []string {
	return []string{"pullrequest:created", "pullrequest:updated", "repo:push"}
}

type bitbucketHook struct {
	UUID        string   `json:"uuid,omitempty"`
	Description string   `json:"description"`
	URL         string   `json:"url"`
	Active      bool     `json:"active"`
	SkipCert    bool     `json:"skip_cert_verification"`
	Events      []string `json:"events"`
	Secret      string   `json:"secret,omitempty"` // answers say only secret_set
}

func (h bitbucketHook) hook() Hook {
	return Hook{ID: h.UUID, URL: h.URL, Events: h.Events, Active: h.Active, InsecureTLS: h.SkipCert}
}

func bitbucketForm(h Hook) bitbucketHook {
	return bitbucketHook{Description: "limpet", URL: h.URL, Active: true, SkipCert: h.InsecureTLS, Events: h.Events, Secret: string(h.Secret)}
}

func (b *bitbucket) path(rest string) string { return "/repositories/" + b.place.escaped() + rest }

// hooks differs from other hosts: a list is an object that contains whether there are
// more pages.
func (b *bitbucket) hooks(ctx context.Context, page int) ([]Hook, bool, error) {
	list, err := ask[struct {
		Values []bitbucketHook `json:"values"`
		Next   string          `json:"next"`
	}](ctx, b.caller, request{op: "list webhooks of " + b.place.Path, method: http.MethodGet, path: b.list, query: pageOf(page, b.size)})
	return hooksOf(list.Values, bitbucketHook.hook), list.Next != "", err
}

func (b *bitbucket) facts(ctx context.Context) (Facts, error) {
	f, err := ask[struct {
		FullName   string `json:"full_name"`
		MainBranch *struct {
			Name string `json:"name"`
		} `json:"mainbranch"`
	}](ctx, b.caller, request{op: "read repository " + b.place.Path, method: http.MethodGet, path: b.path("")})
	out := Facts{FullName: f.FullName}
	if f.MainBranch != nil {
		out.DefaultBranch = f.MainBranch.Name
	}
	return out, err
}

// protection is visible to administrators of a repository only, as rules that name
// branches by pattern, users and groups. Their effect on a token cannot be derived.
func (b *bitbucket) protection(context.Context, string) (Protection, error) {
	return ProtectionUnknown, nil
}
