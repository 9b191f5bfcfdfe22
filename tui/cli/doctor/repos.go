package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/sync/worker/sink"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

// Checks of repositories.

// testOf is the command that tests a repository.
func testOf(r snapshot.Repo) string { return command.CommandFor(r.Namespace, "repo test "+r.Name) }

// maxRepositories bounds how many are checked.
const maxRepositories = 5000

// repositories lists them from the API, else from the daemon's snapshot. nil means unknown.
func (p *examination) repositories(ctx context.Context) ([]snapshot.Repo, check) {
	repos := []snapshot.Repo{}
	switch {
	case p.api.usable():
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		items, err := p.s.List(ctx, api.Repositories, p.env.Flags.ListNamespace(), "", nil, maxRepositories)
		if err != nil {
			return nil, failed(kube.Hint(err), "%s", command.ErrorText(err))
		}
		for i := range items {
			if row, ok := snapshot.RepoOf(&items[i]); ok {
				repos = append(repos, row)
			}
		}
	case p.snap != nil && (p.snap.API.Synced || !p.snap.AsOf.IsZero()):
		repos = append(repos, p.snap.Repos...)
	default:
		return nil, skipped(noAnswer)
	}
	c := judgeRepositories(repos)
	for _, r := range repos {
		if r.Sink == "" || c.Result != checkOK {
			continue
		}
		if _, err := sink.Permit(r.Sink, p.env.Flags.SinkPrefix); err != nil {
			c = warned("limpet --daemon --sink-prefix "+text.ShellWord(filepath.Dir(r.Sink)),
				"%s/%s: by the options of this command, %v", r.Namespace, r.Name, err)
		}
	}
	return repos, c
}

// judgeRepositories reports those that are not healthy, and those with another unmet condition,
// such as that of their webhook or their signatures.
func judgeRepositories(repos []snapshot.Repo) check {
	var failing, unmet []snapshot.Repo
	what := ""
	for _, r := range repos {
		i := slices.IndexFunc(r.Conditions, snapshot.Condition.Unmet)
		switch {
		case r.Failing():
			failing = append(failing, r)
		case i >= 0:
			unmet = append(unmet, r)
			what = cmp.Or(what, r.Conditions[i].Type+": "+r.Conditions[i].Message)
		}
	}
	switch {
	case len(repos) == 0:
		return check{Result: checkOK, Found: "there is none", Next: "limpet repo create NAME --url URL"}
	case len(failing) > 0:
		next := testOf(failing[0])
		if slices.ContainsFunc(failing, func(r snapshot.Repo) bool { return kube.RefusesGitHost(r.Health) }) {
			next = kube.AllowedGitURLs
		}
		return warned(next, "%d of %d not healthy, the first is %s/%s", len(failing), len(repos), failing[0].Namespace,
			failing[0].Name)
	case len(unmet) > 0:
		return warned(command.CommandFor(unmet[0].Namespace, "repo show "+unmet[0].Name),
			"%d of %d have an unmet condition, the first is %s/%s: %s",
			len(unmet), len(repos), unmet[0].Namespace, unmet[0].Name, what)
	}
	return passed("%d, none is known to be failing", len(repos))
}

// checkOrphans counts the objects of repositories that do not exist.
func (p *examination) checkOrphans(ctx context.Context) check {
	orphans, err := object.ListOrphans(ctx, p.env, p.s)
	switch {
	case err != nil:
		return failed(kube.Hint(err), "%s", command.ErrorText(err))
	case len(orphans) == 0:
		return passed("no object has a manager that does not exist")
	}
	c := warned(orphans[0].Next(), "%s", orphans[0])
	if more := len(orphans) - 1; more > 0 {
		c.Found += fmt.Sprintf("; and %d more repositories", more)
	}
	return c
}

// maxHosts bounds the hosts and programs that are tried at a time.
const maxHosts = 64

// forEach calls try for all names at a time, and returns the error of each.
func forEach(names []string, try func(i int, name string) error) []error {
	errs := make([]error, len(names))
	var g errgroup.Group
	g.SetLimit(maxHosts)
	for i, name := range names {
		g.Go(func() error {
			errs[i] = try(i, name)
			return nil
		})
	}
	_ = g.Wait() // each name has its own error
	return errs
}

// checkGitHosts opens a connection to each Git host, or to its proxy. It sends nothing: 'limpet
// repo test' does.
func (p *examination) checkGitHosts(ctx context.Context) check {
	users := map[string]snapshot.Repo{} // one repository for each address
	for _, r := range p.repos {
		for _, url := range append(strings.Fields(r.Mirrors), r.URL) {
			if address, ok := gitAddress(url); ok {
				users[address] = r
			}
		}
	}
	tried := slices.Sorted(maps.Keys(users))
	private := make([]string, len(tried))
	errs := forEach(tried, func(i int, address string) error {
		is, err := dial(ctx, address)
		if is {
			private[i] = address
		}
		return err
	})
	c := passed("reached: %s", cmp.Or(strings.Join(tried, ", "), "none is needed"))
	away := 0
	for i, err := range slices.Backward(errs) {
		if err != nil {
			away++
			c = failed(testOf(users[tried[i]]), "%d of %d cannot be reached, the first is %s (%v)", away, len(tried), tried[i], err)
		}
	}
	private = slices.DeleteFunc(private, func(address string) bool { return address == "" })
	if c.Result != checkOK || len(private) == 0 || !p.api.usable() || p.embedded() {
		return c
	}
	if grafana, _ := p.client.Serves(ctx, api.Repositories.GroupVersion(), "repositories/files"); grafana {
		return c.but(kube.AllowedGitURLs, "; a Grafana server refuses private addresses that are not allowed: "+strings.Join(private, ", "))
	}
	return c
}

// dial opens and closes a connection, and reports whether its address is private. Its error has no
// address.
func dial(ctx context.Context, address string) (private bool, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		txt := err.Error()
		return false, fmt.Errorf("%s", txt[strings.LastIndex(": "+txt, ": "):])
	}
	at, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	_ = conn.Close() // a connection that cannot be closed was open
	return netx.PublicOnly.Check(at.Addr()) != nil, nil
}

// gitAddress returns the address to dial for a URL: the host, or its proxy by the environment.
func gitAddress(raw string) (string, bool) {
	a, err := auth.ParseAddress(raw)
	if err != nil || a.Local() {
		return "", false
	}
	u := &url.URL{Scheme: strings.TrimPrefix(a.Scheme, "limpet+"), Host: a.HostPort()}
	if u.Scheme == "http" || u.Scheme == "https" {
		if proxy, err := netx.FromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
			u = proxy
		}
	}
	return withPort(u), true
}

// checkSources checks whether all sources are ready, and who reconciles them.
func (p *examination) checkSources(context.Context) check {
	if p.snap == nil || p.snap.Agent.Sources == nil || len(p.snap.Sources) == 0 {
		return passed("no source")
	}
	unready, next := 0, ""
	for _, s := range p.snap.Sources {
		if s.Unready() {
			unready++
			next = cmp.Or(next, "limpet source list"+s.Flag())
		}
	}
	txt := fmt.Sprintf("%s, %d not ready; %s", text.Plural(len(p.snap.Sources), "source"), unready, p.snap.Agent.Sources.TextOf("sources"))
	if unready > 0 {
		return warned(next, "%s", txt)
	}
	return passed("%s", txt)
}

// maxHealthAge is the greatest age of the newest health check where a controller runs: every five
// minutes when healthy.
const maxHealthAge = 15 * time.Minute

// checkControllers checks whether repositories are reconciled, by the daemon's snapshot and the age
// of the newest check.
func (p *examination) checkControllers(context.Context) check {
	var newest time.Time
	enabled := false
	for _, r := range p.repos {
		enabled = enabled || r.Enabled
		if r.Checked.After(newest) {
			newest = r.Checked
		}
	}
	start, mode := "limpet --daemon", ""
	if p.snap != nil && p.snap.Agent.Controllers.Mode != "" {
		start, mode = "limpet --daemon --controllers on", p.snap.Agent.Controllers.Text()+"; "
	}
	switch age := p.now.Sub(newest); {
	case !enabled:
		return passed("%sno repository has sync enabled", mode)
	case newest.IsZero():
		return warned(start, "%sno repository was ever checked", mode)
	case age > maxHealthAge:
		return warned(start, "%sthe newest check of a repository is %s old", mode, text.Age(age))
	default:
		return passed("%sa repository was checked %s ago", mode, text.Age(max(age, 0)))
	}
}
