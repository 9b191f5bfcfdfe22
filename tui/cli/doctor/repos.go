package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Checks of repositories.

// repository is what the doctor knows of one.
type repository struct {
	namespace, name string
	urls            []string // of the repository and its mirrors
	enabled, hooked bool
	failing         bool
	checked, event  time.Time
	object          *api.Repository // nil = known from the daemon's snapshot only
}

// maxRepositories bounds how many are checked.
const maxRepositories = 5000

// repositories lists them from the API, else from the daemon's snapshot. nil means unknown.
func (p *examination) repositories(ctx context.Context, reach check) ([]repository, check) {
	c := check{"repositories", checkSkipped, "the API is not there to be asked", ""}
	repos := []repository{}
	switch {
	case reach.Result == checkOK || reach.Result == checkWarn:
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		items, err := p.s.List(ctx, api.Repositories, p.Flags.ListNamespace(), "", nil, maxRepositories)
		if err != nil {
			return nil, check{c.Name, checkFail, command.ErrorText(err), kube.Hint(err)}
		}
		for i := range items {
			repo, err := api.RepositoryView(&items[i])
			if err != nil {
				continue
			}
			one := repository{namespace: items[i].GetNamespace(), name: items[i].GetName(), enabled: repo.Spec.Sync.Enabled,
				checked: api.TimeOfMillis(repo.Status.Health.Checked)}
			one.failing = !one.checked.IsZero() && !repo.Status.Health.Healthy
			one.object = &repo
			if b := repo.Spec.Block(); b != nil && repo.Spec.Type != "local" {
				one.urls = []string{b.URL}
				if mirrors, err := auth.Mirrors(repo.GitMirrors, b.URL); err == nil {
					one.urls = append(one.urls, mirrors...)
				}
			}
			if h := repo.Status.Webhook; h != nil && (h.ID != 0 || h.UUID != "") {
				one.hooked, one.event = true, api.TimeOfMillis(h.LastEvent)
			}
			repos = append(repos, one)
		}
	case p.snap != nil && (p.snap.API.Synced || !p.snap.AsOf.IsZero()):
		for _, r := range p.snap.Repos {
			one := repository{namespace: r.Namespace, name: r.Name, urls: append([]string{r.URL}, strings.Fields(r.Mirrors)...),
				enabled: r.Enabled, checked: r.Checked, failing: !r.Checked.IsZero() && !r.Healthy}
			if r.Webhook != nil {
				one.hooked, one.event = true, r.Webhook.LastEvent
			}
			repos = append(repos, one)
		}
	default:
		return nil, c
	}
	return repos, repositoriesText(check{c.Name, checkOK, "", ""}, repos)
}

func repositoriesText(c check, repos []repository) check {
	var ill []repository
	for _, r := range repos {
		if r.failing {
			ill = append(ill, r)
		}
	}
	switch {
	case len(repos) == 0:
		c.Found, c.Next = "there is none", "limpet repo create NAME --url URL"
	case len(ill) == 0:
		c.Found = fmt.Sprintf("%d, none is known to be ill", len(repos))
	default:
		c.Result, c.Next = checkWarn, command.CommandFor(ill[0].namespace, "repo test "+ill[0].name)
		c.Found = fmt.Sprintf("%d of %d are not healthy, the first is %s/%s", len(ill), len(repos), ill[0].namespace, ill[0].name)
	}
	return c
}

// maxHosts bounds the Git hosts that are tried.
const maxHosts = 64

// checkGitHosts opens a connection to each Git host, or to its proxy. It sends nothing: 'limpet repo test'
// does.
func (p *examination) checkGitHosts(ctx context.Context, repos []repository) check {
	c := check{"git hosts", checkOK, "", ""}
	if repos == nil {
		return check{c.Name, checkSkipped, "repositories are not known", ""}
	}
	users := map[string]repository{} // one repository for each address
	for _, r := range repos {
		for _, url := range r.urls {
			if address, ok := gitAddress(url); ok {
				users[address] = r
			}
		}
	}
	addresses := slices.Sorted(maps.Keys(users))
	tried := addresses[:min(len(addresses), maxHosts)]
	var mu sync.Mutex // guards away
	away := map[string]string{}
	var g errgroup.Group
	g.SetLimit(16)
	for _, address := range tried {
		g.Go(func() error {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				away[address] = dialText(err)
				return nil
			}
			return conn.Close()
		})
	}
	_ = g.Wait() // a connection that cannot be closed was open
	return gitHostsText(c, tried, len(addresses), away, users)
}

// dialText returns the end of a dial error, without the address.
func dialText(err error) string {
	txt := err.Error()
	if i := strings.LastIndex(txt, ": "); i >= 0 {
		txt = txt[i+2:]
	}
	return txt
}

func gitHostsText(c check, tried []string, all int, away map[string]string, users map[string]repository) check {
	switch {
	case all == 0:
		c.Found = "no repository needs one"
	case len(away) == 0:
		c.Found = "reached: " + strings.Join(tried, ", ")
	default:
		first := slices.Sorted(maps.Keys(away))[0]
		c.Result, c.Found = checkFail, fmt.Sprintf("%d of %d cannot be reached, the first is %s (%s)", len(away), len(tried), first,
			away[first])
		c.Next = command.CommandFor(users[first].namespace, "repo test "+users[first].name)
	}
	if len(tried) < all {
		c.Found += fmt.Sprintf("; %d more were not tried", all-len(tried))
	}
	return c
}

// gitAddress returns the address to dial for a URL: the host, or its proxy by the environment.
func gitAddress(raw string) (string, bool) {
	a, err := auth.ParseAddress(raw)
	if err != nil || a.Scheme == "file" {
		return "", false
	}
	u := &url.URL{Scheme: a.Scheme, Host: a.HostPort()}
	if a.Scheme == "http" || a.Scheme == "https" {
		if proxy, err := netx.FromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
			u = proxy
		}
	}
	return withPort(u), true
}

// maxHealthAge is the greatest age of the newest health check where a controller runs: every five minutes
// when healthy.
const maxHealthAge = 15 * time.Minute

// checkControllers checks whether repositories are reconciled, by the daemon's snapshot and the age of the
// newest check.
func (p *examination) checkControllers(repos []repository) check {
	if repos == nil {
		return check{"controllers", checkSkipped, "repositories are not known", ""}
	}
	var seen snapshot.Controllers
	if p.snap != nil {
		seen = p.snap.Agent.Controllers
	}
	return judgeControllers(check{"controllers", checkOK, "", ""}, seen, repos, p.now)
}

func judgeControllers(c check, seen snapshot.Controllers, repos []repository, now time.Time) check {
	var newest time.Time
	enabled := 0
	for _, r := range repos {
		if r.enabled {
			enabled++
		}
		if r.checked.After(newest) {
			newest = r.checked
		}
	}
	start := "limpet --daemon"
	if seen.Mode != "" {
		c.Found = seen.Text() + "; "
		start = "limpet --daemon --controllers on"
	}
	switch {
	case enabled == 0:
		c.Found += "no repository has sync enabled"
	case newest.IsZero():
		c.Result, c.Next = checkWarn, start
		c.Found += "no repository was ever checked"
	case now.Sub(newest) > maxHealthAge:
		c.Result, c.Next = checkWarn, start
		c.Found += fmt.Sprintf("the newest check of a repository is %s old", text.Age(now.Sub(newest)))
	default:
		c.Found += fmt.Sprintf("a repository was checked %s ago", text.Age(max(now.Sub(newest), 0)))
	}
	return c
}

func (p *examination) checkWebhooks(ctx context.Context, repos []repository) check {
	c := check{"webhooks", checkOK, "off: changes are found by the interval", ""}
	hooked, last := 0, time.Time{}
	for _, r := range repos {
		if r.hooked {
			hooked++
		}
		if r.event.After(last) {
			last = r.event
		}
	}
	if p.Flags.WebhookListen == "" {
		if hooked > 0 {
			c.Found = fmt.Sprintf("not received here; %d repositories have one, %s", hooked, lastEvent(p.now, last))
		}
		return c
	}
	c.Found = fmt.Sprintf("received on %s, %d repositories have one, %s", p.Flags.WebhookListen, hooked, lastEvent(p.now, last))
	var dialer net.Dialer
	if conn, err := dialer.DialContext(ctx, "tcp", p.Flags.WebhookListen); err == nil {
		conn.Close()
	} else {
		return check{c.Name, checkFail, fmt.Sprintf("nobody listens on %s: %s", p.Flags.WebhookListen, dialText(err)),
			"limpet --daemon --webhook-listen " + command.ShellWord(p.Flags.WebhookListen)}
	}
	u, err := url.Parse(p.Flags.WebhookURL)
	if p.Flags.WebhookURL == "" || err != nil {
		c.Found += "; without --webhook-url a person has to register them"
		return c
	}
	conn, err := dialer.DialContext(ctx, "tcp", withPort(u))
	if err != nil {
		return check{c.Name, checkWarn, fmt.Sprintf("%s cannot be reached from here: %s; hosts may have another way to it", u.Host,
			dialText(err)), "curl -i " + p.Flags.WebhookURL}
	}
	conn.Close()
	c.Found += ", reached at " + u.Host
	return c
}

func lastEvent(now, at time.Time) string {
	if at.IsZero() {
		return "no event yet"
	}
	return "last event " + command.Since(now, at) + " ago"
}
