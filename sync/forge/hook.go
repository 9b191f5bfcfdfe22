package forge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"limpet/sync/netx"
)

// Where webhooks are, and bounds of a list. No host lets a repository have more of them.
const (
	hooksPath = "/hooks"
	perPage   = 100
	mostPages = 10
)

// Secret is a text that is written to a host and never read back. It prints as "[redacted]".
type Secret string

// Format hides the secret in every verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.hidden()) }

// MarshalJSON hides the secret in JSON; the hosts' own structs hold plain text.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.hidden()) }

func (s Secret) hidden() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// Hook is a webhook of a repository.
type Hook struct {
	ID     string   // a number in decimal; on Bitbucket a UUID in braces
	URL    string   // where events are sent to
	Events []string // in the words of the host; nil on Create and Edit = Remote.Events
	Active bool     // as read; a hook that is written is active
	Secret Secret   // what events are signed with; "" as read
}

// Number returns the ID as a number, 0 when it is none.
func (h Hook) Number() int64 {
	n, err := strconv.ParseInt(h.ID, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Same reports whether other has the same effect as h: the same URL and events, and
// active. It ignores secrets, which no host returns.
func (h Hook) Same(other Hook) bool {
	a, b := slices.Sorted(slices.Values(h.Events)), slices.Sorted(slices.Values(other.Events))
	return sameURL(h.URL, other.URL) && slices.Equal(slices.Compact(a), slices.Compact(b)) && other.Active
}

// sameURL compares as browsers do: scheme and host without case, the path without a slash at its
// end.
func sameURL(a, b string) bool {
	return normalURL(a) == normalURL(b)
}

func normalURL(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return raw
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if u.Port() == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		u.Host = strings.TrimSuffix(u.Host, ":"+u.Port())
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return u.String()
}

// errHidden replaces the bare "404" that hosts answer to a token without the permission for
// webhooks.
var errHidden = errors.New("the repository is not there, or the token may not manage its webhooks")

// asForbidden turns the NotFound of a list into Forbidden.
func asForbidden(err error) error {
	return changed(err, netx.NotFound, func(e *netx.Error) { e.Kind, e.Err = netx.Forbidden, errHidden })
}

// List returns all webhooks, at most 1,000. The error is Forbidden for a token without the
// permission.
func (r *Remote) List(ctx context.Context) (all []Hook, err error) {
	err = r.pages(ctx, r.request("list webhooks of", http.MethodGet, hooksPath), func(data json.RawMessage) error {
		h, err := r.read(data)
		all = append(all, h)
		return err
	})
	if err != nil {
		return nil, asForbidden(err)
	}
	return all, nil
}

// pages calls each with the entries of a list, at most mostPages pages of them.
func (r *Remote) pages(ctx context.Context, list request, each func(json.RawMessage) error) error {
	for page := 1; page <= mostPages; page++ {
		list.query = url.Values{"page": {strconv.Itoa(page)}, r.size: {strconv.Itoa(perPage)}}
		got, err := r.caller.do(ctx, list)
		if err != nil {
			return err
		}
		// Bitbucket wraps the list, and says there whether another page follows.
		var wrapped struct {
			Values []json.RawMessage `json:"values"`
			Next   string            `json:"next"`
		}
		var found []json.RawMessage
		if json.Unmarshal(got.Body, &wrapped) == nil {
			found = wrapped.Values
		} else if found, err = into[[]json.RawMessage](r.caller, list, got); err != nil {
			return err
		}
		for _, entry := range found {
			if each(entry) != nil {
				return r.caller.fail(list, netx.Protocol, errors.New("the answer is not what this API answers"))
			}
		}
		link := strings.Join(got.Header.Values("Link"), ",")
		if !strings.Contains(link, `rel="next"`) && wrapped.Next == "" && got.Header.Get("X-Next-Page") == "" {
			break
		}
	}
	return nil
}

// Events returns the events of a webhook of this host, by its own names.
func (r *Remote) Events() []string { return r.events }

// Find returns the oldest webhook with this URL, nil when there is none.
func (r *Remote) Find(ctx context.Context, url string) (*Hook, error) {
	all, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if sameURL(h.URL, url) {
			return &h, nil
		}
	}
	return nil, nil
}

// Get returns one webhook, nil when it does not exist.
func (r *Remote) Get(ctx context.Context, id string) (*Hook, error) {
	h, err := r.ask(ctx, r.request("read webhook of", http.MethodGet, one(id)), Hook{})
	if netx.KindOf(err) == netx.NotFound {
		return nil, nil
	}
	return &h, err
}

func one(id string) string { return hooksPath + "/" + url.PathEscape(id) }

// ask performs a call that answers one webhook. The body has the secret of h.
func (r *Remote) ask(ctx context.Context, q request, h Hook) (Hook, error) {
	c := r.caller.withSecret(h.Secret)
	data, err := ask[json.RawMessage](ctx, c, q)
	if err != nil {
		return Hook{}, err
	}
	if h, err = r.read(data); err != nil {
		err = c.fail(q, netx.Protocol, errors.New("the answer is not what this API answers"))
	}
	return h, err
}

// Create creates a webhook. An existing one with the same URL is adopted: it gets this secret and
// these events. So a webhook that was created before a power cut is found again.
func (r *Remote) Create(ctx context.Context, h Hook) (Hook, error) {
	if adopted, ok, err := r.adopt(ctx, h); ok || err != nil {
		return adopted, err
	}
	h = r.withDefaults(h)
	h.ID = "" // it may be that of a deleted webhook
	create := r.request("create webhook of", http.MethodPost, hooksPath)
	create.body = r.write(h)
	made, err := r.ask(ctx, create, h)
	if kind := netx.KindOf(err); kind != netx.Refused {
		return made, asForbidden(err)
	}
	// Another client created it meanwhile, or the list is stale.
	if adopted, ok, again := r.adopt(ctx, h); ok && again == nil {
		return adopted, nil
	}
	return Hook{}, err
}

// adopt edits the webhook that has the URL of h. ok reports that there is one.
func (r *Remote) adopt(ctx context.Context, h Hook) (_ Hook, ok bool, err error) {
	have, err := r.Find(ctx, h.URL)
	if err != nil || have == nil {
		return Hook{}, false, err
	}
	h.ID = have.ID
	h, err = r.Edit(ctx, h)
	return h, true, err
}

// Edit writes URL, events and secret of the webhook with this ID. The error is NotFound when it
// does not exist.
func (r *Remote) Edit(ctx context.Context, h Hook) (Hook, error) {
	h = r.withDefaults(h)
	edit := r.request("edit webhook of", r.change, one(h.ID))
	edit.body = r.write(h)
	return r.ask(ctx, edit, h)
}

// Delete deletes a webhook. A missing one is no error.
func (r *Remote) Delete(ctx context.Context, id string) error {
	_, err := r.caller.do(ctx, r.request("delete webhook of", http.MethodDelete, one(id)))
	if netx.KindOf(err) == netx.NotFound {
		return nil
	}
	return err
}

func (r *Remote) withDefaults(h Hook) Hook {
	if len(h.Events) == 0 {
		h.Events = r.Events()
	}
	return h
}
