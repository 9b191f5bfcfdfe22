package forge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a list of hooks. No host lets a repository have more.
const (
	hooksPerPage = 100
	mostPages    = 10
)

// Secret is a text that is written to a host and never read back. It prints as
// "[redacted]".
type Secret string

// Format hides the secret in every verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.hidden()) }

// LogValue hides the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.hidden()) }

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
	// InsecureTLS has the host not check the certificate of URL. Gitea has no
	// such setting.
	InsecureTLS bool
	Secret      Secret // what events are signed with; "" as read
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

// sameURL compares as browsers do: scheme and host without case, the path
// without a slash at its end.
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

// errHidden replaces the bare "404" that hosts answer to a token without the
// permission for webhooks.
var errHidden = errors.New("the repository is not there, or the token may not manage its webhooks")

// asForbidden turns the NotFound of a list into Forbidden.
func asForbidden(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != NotFound {
		return err
	}
	hidden := *e
	hidden.Kind, hidden.Err = Forbidden, errHidden
	return &hidden
}

// List returns all webhooks, at most 1,000. The error is Forbidden for a token
// without the permission.
func (r *Remote) List(ctx context.Context) ([]Hook, error) {
	var all []Hook
	for page := 1; page <= mostPages; page++ {
		found, more, err := r.host.hooks(ctx, page)
		if err != nil {
			return nil, asForbidden(err)
		}
		all = append(all, found...)
		if !more {
			break
		}
	}
	return all, nil
}

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
	h, err := r.host.hook(ctx, id)
	switch KindOf(err) {
	case "":
		return &h, nil
	case NotFound:
		return nil, nil
	}
	return nil, err
}

// Create creates a webhook. An existing one with the same URL is adopted: it gets
// this secret and these events. So a webhook that was created before a power cut is
// found again.
func (r *Remote) Create(ctx context.Context, h Hook) (Hook, error) {
	adopted, err := r.adopt(ctx, h)
	if err != nil || adopted != nil {
		return value(adopted), err
	}
	made, err := r.host.create(ctx, r.withDefaults(h))
	if kind := KindOf(err); kind != Refused {
		return made, asForbidden(err)
	}
	// Another client created it meanwhile, or the list is stale.
	if adopted, again := r.adopt(ctx, h); again == nil && adopted != nil {
		return *adopted, nil
	}
	return Hook{}, err
}

func (r *Remote) adopt(ctx context.Context, h Hook) (*Hook, error) {
	have, err := r.Find(ctx, h.URL)
	if err != nil || have == nil {
		return nil, err
	}
	h.ID = have.ID
	edited, err := r.Edit(ctx, h)
	if err != nil {
		return nil, err
	}
	return &edited, nil
}

func value(h *Hook) Hook {
	if h == nil {
		return Hook{}
	}
	return *h
}

// Edit writes URL, events and secret of the webhook with this ID. The error is
// NotFound when it does not exist.
func (r *Remote) Edit(ctx context.Context, h Hook) (Hook, error) {
	return r.host.edit(ctx, r.withDefaults(h))
}

// Delete deletes a webhook. A missing one is no error.
func (r *Remote) Delete(ctx context.Context, id string) error {
	err := r.host.remove(ctx, id)
	if KindOf(err) == NotFound {
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

// Facts is the metadata of a repository at its host.
type Facts struct {
	ID            int64  // 0 on Bitbucket, which has UUIDs
	FullName      string // as the host writes it now
	DefaultBranch string // "" for an empty repository on some hosts
	Archived      bool
}

// Facts reads the metadata.
func (r *Remote) Facts(ctx context.Context) (Facts, error) { return r.host.facts(ctx) }

// Protection is the protection of a branch against writes.
type Protection string

// Protections of a branch.
const (
	Unprotected       Protection = "unprotected"
	ReviewsRequired   Protection = "reviews-required" // changes come by pull requests
	Locked            Protection = "locked"           // no writes, or none by this identity
	ProtectionUnknown Protection = "unknown"          // this identity may not read it
)

// Protection reads the protection. An unreadable one is unknown; an error means only
// that ctx has ended.
func (r *Remote) Protection(ctx context.Context, branch string) (Protection, error) {
	p, err := r.host.protection(ctx, branch)
	switch KindOf(err) {
	case "":
		return p, nil
	case Cancelled:
		return ProtectionUnknown, err
	}
	return ProtectionUnknown, nil
}

// send performs a call and ignores the answer.
func send(ctx context.Context, c *caller, r request) error {
	_, err := c.do(ctx, r)
	return err
}

// pageOf returns the query of a list.
func pageOf(page int, size string) url.Values {
	return url.Values{"page": {strconv.Itoa(page)}, size: {strconv.Itoa(hooksPerPage)}}
}

// hasNext reports whether the Link header of GitHub, GitLab and Gitea has a next
// page.
func hasNext(h http.Header) bool {
	return strings.Contains(strings.Join(h.Values("Link"), ","), `rel="next"`)
}
