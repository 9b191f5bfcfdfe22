package forge

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// ErrNoSecret is wrapped when this agent has no secret of a Connection: it can
// neither use nor test it.
var ErrNoSecret = errors.New("this agent has no secret of it")

// Connection is the part of a Connection object that is needed to use it.
type Connection struct {
	UID       string
	Namespace string
	Name      string
	Spec      api.ConnectionSpec
	Secure    map[string]string // field -> name of the secret
}

// ConnectionOf reads a Connection object.
func ConnectionOf(u *unstructured.Unstructured) (Connection, error) {
	view, err := api.ConnectionView(u)
	if err != nil {
		return Connection{}, err
	}
	c := Connection{UID: string(u.GetUID()), Namespace: u.GetNamespace(), Name: u.GetName(), Spec: view.Spec, Secure: map[string]string{}}
	for field, value := range view.Secure {
		if value.Name != "" {
			c.Secure[field] = value.Name
		}
	}
	return c, nil
}

func (c Connection) String() string { return "connection " + c.Namespace + "/" + c.Name }

// app returns the App of a Connection of type github or githubEnterprise, nil for
// other types, which hold a token.
func (c Connection) app() *api.GitHubApp {
	switch c.Spec.Type {
	case "github":
		return orEmpty(c.Spec.GitHub)
	case "githubEnterprise":
		return orEmpty(c.Spec.GitHubEnterprise)
	}
	return nil
}

// Mints reports whether tokens are minted for the Connection, because it is that of a
// GitHub App. Others hold a token.
func (c Connection) Mints() bool { return c.app() != nil }

func orEmpty(app *api.GitHubApp) *api.GitHubApp {
	if app == nil {
		return &api.GitHubApp{}
	}
	return app
}

// api returns the base URL of the REST API, and the host and port of its clone URLs.
func (c Connection) api(apis map[string]string) (base, host string, err error) {
	a, err := auth.ParseServer(c.Spec.Server())
	if err != nil {
		return "", "", invalid("use "+c.String(), "the address of its host: %w", err)
	}
	origin, host := a.Scheme+"://"+a.HostPort(), a.HostPort()
	if base, set := apis[host]; set {
		return strings.TrimSuffix(base, "/"), host, nil
	}
	switch c.Spec.Type {
	case "gitlab":
		return origin + "/api/v4", host, nil
	case "bitbucket":
		if host != "bitbucket.org" && host != "www.bitbucket.org" {
			return "", "", invalid("use "+c.String(), "%s is not Bitbucket Cloud, and the API of Bitbucket Data Center is not spoken here", host)
		}
		return "https://api.bitbucket.org/2.0", host, nil
	case "githubEnterprise", "githubEnterpriseOAuth":
		base, err = serverAPI(c.Spec.Server())
		return base, host, err
	}
	base, err = serverAPI(origin) // the URL of a GitHub connection may be a page
	return base, host, err
}

// serves returns nil when a repository is at the host of this Connection. A token is
// never sent to another host, whatever a Repository says.
func (c Connection) serves(a auth.Address, host string) error {
	same := strings.EqualFold(a.HostPort(), host) ||
		strings.TrimPrefix(a.HostPort(), "www.") == strings.TrimPrefix(host, "www.")
	if !same {
		return invalid("use "+c.String(), "it is for %s, and the repository is at %s", host, a.HostPort())
	}
	return nil
}

// check validates the spec of an App.
func (c Connection) check(app *api.GitHubApp) error {
	for name, value := range map[string]string{"appID": app.AppID, "installationID": app.InstallationID} {
		if value == "" || strings.Trim(value, "0123456789") != "" {
			e := invalid("use "+c.String(), "%s is not a number, written as text", name)
			e.Fields = []Field{{Type: "FieldValueInvalid", Field: "spec." + c.Spec.Type + "." + name, Detail: "must be a number, written as text"}}
			return e
		}
	}
	return nil
}

// credentials returns those for the REST API of a Connection that holds a token.
func (c Connection) credentials(s *auth.ConnectionSecret, value string) *auth.Credentials {
	return &auth.Credentials{Bearer: value, CA: s.CA, ClientCert: s.ClientCert, ClientKey: s.ClientKey, Proxy: s.Proxy, Source: c.String()}
}

// user returns the user name that goes with a token over Git.
func (c Connection) user() string {
	switch c.Spec.Type {
	case "gitlab":
		return "oauth2"
	case "bitbucket":
		return "x-token-auth"
	}
	return "x-access-token"
}

func isNoSecret(err error) bool { return errors.Is(err, ErrNoSecret) }

func (c Connection) noSecret() error {
	return fmt.Errorf("use %s: %w", c, ErrNoSecret)
}
