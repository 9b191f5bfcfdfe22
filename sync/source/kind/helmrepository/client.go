package helmrepository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"oras.land/oras-go/v2/registry/remote/retry"

	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/fileid"
	"limpet/sync/git"
	"limpet/sync/netx"
	"limpet/sync/source/controller"
)

// Repository is the part of the spec of a HelmRepository that says where it is, and how it is
// reached.
type Repository struct {
	Namespace       string `json:"-"`
	URL             string
	Type            string
	SecretRef       struct{ Name string }
	CertSecretRef   struct{ Name string }
	PassCredentials bool
	Insecure        bool
	Provider        string
	Timeout         string
}

// Parse reads the spec of a HelmRepository.
func Parse(obj *unstructured.Unstructured) (r Repository, err error) {
	if err = controller.Decode(obj, &r); err != nil {
		return r, err
	}
	r.Namespace = obj.GetNamespace()
	if err := r.checkURL(); err != nil {
		return r, controller.Stalled(auth.ReasonURL, "invalid Helm repository URL: %w", err)
	}
	return r, nil
}

// checkURL returns why there can be no repository at the URL, and does not repeat that: it may hold
// a password.
func (r Repository) checkURL() error {
	at, err := url.Parse(r.URL)
	switch {
	case err != nil:
		return errors.New("it cannot be parsed")
	case at.User != nil:
		return errors.New("it holds a user name or a password; put them into a Secret, and name that in spec.secretRef (--secret)")
	case at.Scheme == "oci" && !r.OCI():
		return errors.New("'oci' URL scheme cannot be used with 'default' HelmRepository type")
	case at.Scheme != "oci" && r.OCI():
		return errors.New("a repository of type oci has a URL of oci://")
	case at.Host == "" && at.Scheme != "file":
		return errors.New("it names no host")
	}
	return nil
}

// OCI reports whether the charts are in a registry of containers. Such a repository is read by its
// charts alone.
func (r Repository) OCI() bool { return r.Type == "oci" }

// Host returns the host, "" for a directory of this one.
func (r Repository) Host() string {
	if at, err := url.Parse(r.URL); err == nil && at.Host != "" {
		return netx.HostPort(at)
	}
	return ""
}

// At returns the address of a file of the repository, or of one that its index names. A relative one
// has the query of the repository. Source: Helm.
func (r Repository) At(file string) (*url.URL, error) {
	base, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	named, err := url.Parse(file)
	if err != nil {
		return nil, err
	}
	at := base.JoinPath("/").ResolveReference(named)
	if named.Scheme+named.Host == "" {
		at.RawQuery = cmp.Or(base.RawQuery, at.RawQuery)
	}
	return at, nil
}

// Uses returns the Secrets of the login.
func (r Repository) Uses(sealed func(string) bool) []dependency.Ref {
	return dependency.SecretRefs(r.Namespace, sealed, r.SecretRef.Name, r.CertSecretRef.Name)
}

// Client reads files of repositories. Credentials go to the host of the repository alone, where it
// does not demand otherwise. It is safe for concurrent use.
type Client struct {
	Credentials   auth.Source // of spec.secretRef
	Places        auth.Places // of spec.certSecretRef
	HTTP          *netx.Client
	AllowInsecure bool     // credentials may go over plain http
	AllowLocal    []string // directories below which there may be repositories
}

// LoginError is an error of the credentials of a repository.
type LoginError struct{ error }

func (e *LoginError) Unwrap() error { return e.error }

// login returns what is sent to a host.
func (c *Client) login(ctx context.Context, r Repository, at *url.URL) (*auth.Credentials, error) {
	index, err := r.At("index.yaml")
	if err != nil {
		return nil, err
	}
	found, err := c.Credentials(ctx, auth.Lookup{Namespace: r.Namespace, URL: index.String(), Secure: map[string]string{"secretRef": r.SecretRef.Name}})
	if err != nil {
		return nil, err
	}
	login := auth.Credentials{}
	if found != nil {
		login = *found
	}
	if r.CertSecretRef.Name != "" {
		own, err := c.Places.NamedTransport(ctx, r.Namespace, r.CertSecretRef.Name, "")
		if err != nil {
			return nil, err
		}
		login.CA, login.ClientCert, login.ClientKey = own.CA, own.ClientCert, own.ClientKey
	}
	if !r.PassCredentials && !netx.SameHost(index, at) {
		return login.ForOtherHost(), nil
	}
	if !login.Empty() && at.Scheme == "http" && !c.AllowInsecure && !netx.Loopback(at.Hostname()) {
		return nil, fmt.Errorf("%s is not sent over plain http to %s; use https, or start the agent with --allow-insecure-git", login.Source, at.Host)
	}
	return &login, nil
}

// Get opens a file of a repository, or of another host that its index names. header is that of a
// conditional request. The status is 200 or 304.
func (c *Client) Get(ctx context.Context, r Repository, at *url.URL, header http.Header) (*http.Response, error) {
	switch {
	case at.Scheme == "file":
		return c.file(r, at)
	case at.Scheme != "https" && at.Scheme != "http" || at.Host == "":
		return nil, fmt.Errorf("%s is no address of http", at.Redacted())
	}
	login, err := c.login(ctx, r, at)
	if err != nil {
		return nil, &LoginError{err}
	}
	transport, err := c.HTTP.Following(login, login.ForOtherHost())
	if err != nil {
		return nil, &LoginError{err}
	}
	client := &http.Client{Transport: retry.NewTransport(transport)}
	req := (&http.Request{Method: http.MethodGet, URL: at, Host: at.Host, Header: header.Clone()}).WithContext(ctx)
	req.Header.Set("User-Agent", c.HTTP.UserAgent)
	switch {
	case login.Bearer != "":
		req.Header.Set("Authorization", "Bearer "+login.Bearer)
	case login.Password != "":
		req.SetBasicAuth(login.Username, login.Password)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, errors.New(at.Host + ": " + netx.NoAnswer(err, at, ""))
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotModified {
		return resp, nil
	}
	_ = resp.Body.Close()
	err = fmt.Errorf("%s%s answers %s", at.Host, at.Path, resp.Status) // a query may hold a secret
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		err = &LoginError{fmt.Errorf("%w; check the Secret of spec.secretRef of the HelmRepository", err)}
	}
	return nil, err
}

// file opens a file of a directory of this host.
func (c *Client) file(r Repository, at *url.URL) (*http.Response, error) {
	base, err := url.Parse(r.URL)
	if err != nil || base.Scheme != "file" {
		return nil, errors.New("an index of another host names a file of this one")
	}
	if !git.PermitsDir(c.AllowLocal, base.Path) {
		return nil, fmt.Errorf("local paths are not allowed: use http, or start the agent with --local-git-prefix and a directory above %s", base.Path)
	}
	root, err := git.OpenDir(c.AllowLocal, base.Path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name, err := filepath.Rel(base.Path, at.Path)
	if err != nil {
		return nil, err
	}
	f, _, err := fileid.Open(root.OpenFile, name)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: f}, err
}
