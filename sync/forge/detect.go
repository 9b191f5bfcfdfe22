package forge

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
)

// AnnoForge on a Repository of type git is the API of its host: github,
// githubEnterprise, gitlab, bitbucket, gitea, forgejo, or none.
const AnnoForge = "limpet/forge"

// Target is the part of a Repository that determines its REST API.
type Target struct {
	Type      string // spec.type
	URL       string // spec.<type>.url
	ServerURL string // spec.githubEnterprise.serverUrl
	Email     string // spec.bitbucket.email
	Forge     string // annotation AnnoForge
}

// TargetOf reads a Repository object.
func TargetOf(u *unstructured.Unstructured) Target {
	t := Target{Forge: u.GetAnnotations()[AnnoForge]}
	t.Type, _, _ = unstructured.NestedString(u.Object, "spec", "type")
	if t.Type == "" {
		return t
	}
	text := func(name string) string {
		s, _, _ := unstructured.NestedString(u.Object, "spec", t.Type, name)
		return s
	}
	t.URL, t.ServerURL, t.Email = text("url"), text("serverUrl"), text("email")
	return t
}

// Place is the location of a repository at its host.
type Place struct {
	Kind Kind
	API  string // base URL of the REST, without a slash at its end
	Path string // owner/name; on GitLab with all groups
}

// The APIs of hosts whose name differs from that of the clone URL.
const (
	githubCloud    = "https://api.github.com"
	bitbucketCloud = "https://api.bitbucket.org/2.0"
)

// knownHosts are hosts of a known kind.
var knownHosts = map[string]Kind{
	"github.com": GitHub, "www.github.com": GitHub,
	"gitlab.com": GitLab, "bitbucket.org": Bitbucket,
	"codeberg.org": Gitea, "gitea.com": Gitea, "code.forgejo.org": Gitea,
}

// otherHosts have other APIs. Source: their documentation.
var otherHosts = []string{"dev.azure.com", "ssh.dev.azure.com", ".visualstudio.com", ".amazonaws.com", ".amazonaws.com.cn",
	"source.developers.google.com"}

// locate returns the location of a repository. It is pure except for the probe of a plain Git host.
func (h *Hosts) locate(ctx context.Context, t Target, creds *auth.Credentials) (Place, error) {
	a, err := auth.ParseAddress(t.URL)
	if err != nil {
		return Place{}, invalid("find the forge", "%w", err)
	}
	if a.Local() {
		return Place{}, fmt.Errorf("%w: a local repository has none", ErrNone)
	}
	kind, err := t.kind(a)
	if err != nil {
		return Place{}, err
	}
	if kind != "" {
		return h.detect(kind, t, a)
	}
	place, err := h.detect(Gitea, t, a)
	if err != nil {
		return Place{}, fmt.Errorf("%w at %s: %w", ErrNone, a.HostPort(), err)
	}
	gitea, err := h.isGitea(ctx, place.API, creds)
	if err != nil {
		return Place{}, err
	}
	if !gitea {
		return Place{}, fmt.Errorf("%w at %s that is known; annotation %s can tell its kind", ErrNone, a.HostPort(), AnnoForge)
	}
	return place, nil
}

// kind returns the kind of host if it is known without a probe, else "".
func (t Target) kind(a auth.Address) (Kind, error) {
	switch t.Type {
	case "github", "githubEnterprise", "gitlab", "bitbucket":
		return Kind(t.Type), nil
	case "git":
	default:
		return "", fmt.Errorf("%w: a repository of type %q has none", ErrNone, t.Type)
	}
	switch said := strings.ToLower(t.Forge); said {
	case "":
	case "none":
		return "", fmt.Errorf("%w: annotation %s says so", ErrNone, AnnoForge)
	case "forgejo":
		return Gitea, nil
	default:
		for _, kind := range []Kind{GitHub, GitHubEnterprise, GitLab, Bitbucket, Gitea} {
			if said == strings.ToLower(string(kind)) {
				return kind, nil
			}
		}
		return "", invalid("find the forge", "annotation %s is none of github, githubEnterprise, gitlab, bitbucket, gitea, forgejo, none",
			AnnoForge)
	}
	if kind, ok := knownHosts[a.Host]; ok {
		return kind, nil
	}
	for _, other := range otherHosts {
		if a.Host == strings.TrimPrefix(other, ".") || strings.HasPrefix(other, ".") && strings.HasSuffix(a.Host, other) {
			return "", fmt.Errorf("%w that is known speaks at %s", ErrNone, a.Host)
		}
	}
	return "", nil
}

// detect parses the URL of a repository as its kind of host writes it.
func (h *Hosts) detect(kind Kind, t Target, a auth.Address) (Place, error) {
	if !plainHost(a.Host) { // of ssh, it may change the host of a URL
		return Place{}, invalid("find the forge", "the host of the URL is none")
	}
	parts := slices.DeleteFunc(strings.Split(strings.TrimSuffix(a.Path, ".git"), "/"), func(s string) bool {
		return s == "" || s == "." || s == "~"
	})
	origin := "https://" + a.HostPort()
	switch a.Scheme {
	case "http":
		origin = "http://" + a.HostPort()
	case "ssh": // its port is not that of the API
		a.Port = ""
		origin = "https://" + a.HostPort()
	}
	p := Place{Kind: kind}
	switch kind {
	case GitHub, GitHubEnterprise:
		api, err := serverAPI(origin)
		if kind == GitHubEnterprise && t.ServerURL != "" && strings.HasPrefix(api, origin) { // not GitHub itself
			api, err = serverAPI(t.ServerURL)
			// A token goes to no other host than that of the clone URL.
			if u, _ := url.Parse(api); err == nil && !strings.EqualFold(u.Hostname(), a.Host) {
				err = invalid("find the forge", "the repository is at %s, and spec.githubEnterprise.serverUrl at another host", a.Host)
			}
		}
		if err != nil {
			return Place{}, err
		}
		p.API = api
	case GitLab:
		p.API = origin + "/api/v4"
	case Bitbucket:
		p.API = bitbucketCloud
		if _, set := h.apis[a.HostPort()]; !set && a.Host != "bitbucket.org" && a.Host != "www.bitbucket.org" {
			return Place{}, fmt.Errorf("%w: %s is not Bitbucket Cloud, and the API of Bitbucket Data Center is not spoken here", ErrNone,
				a.HostPort())
		}
	case Gitea:
		// It may live below a path of its host; owner and name come last.
		if n := len(parts) - 2; n > 0 {
			origin += (&url.URL{Path: "/" + strings.Join(parts[:n], "/")}).EscapedPath()
			parts = parts[n:]
		}
		p.API = origin + "/api/v1"
	}
	if len(parts) < 2 || kind != GitLab && len(parts) != 2 {
		return Place{}, invalid("find the forge", "the URL does not end in owner/name")
	}
	p.Path = strings.Join(parts, "/")
	if base, set := h.apis[a.HostPort()]; set {
		p.API = strings.TrimSuffix(base, "/")
	}
	return p, nil
}

// serverAPI returns the base of GitHub's REST API by the URL of a server: a separate host
// for github.com and for GitHub with data residency, below /api/v3 elsewhere.
func serverAPI(server string) (string, error) {
	u, err := url.Parse(strings.TrimSuffix(server, "/"))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", invalid("find the forge", "serverUrl is not an http or https URL without user and query")
	}
	switch host := strings.ToLower(u.Hostname()); {
	case host == "github.com" || host == "www.github.com" || host == "api.github.com":
		return githubCloud, nil
	case strings.HasSuffix(host, ".ghe.com"):
		return "https://api." + strings.TrimPrefix(host, "api."), nil
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/api/v3") + "/api/v3"
	u.Fragment, u.RawPath = "", ""
	return u.String(), nil
}
