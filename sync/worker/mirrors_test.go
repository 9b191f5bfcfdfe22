package worker

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/kube"
)

// TestLookupsOfMirrors: what belongs to a Repository is looked up for its own host
// only; a mirror elsewhere is asked about by its URL and by nothing else.
func TestLookupsOfMirrors(t *testing.T) {
	t.Parallel()
	repo := api.Repository{GitMirrors: "https://b.example.com/site.git, https://A.example.com:443/copy.git http://a.example.com/copy.git",
		GitProvider: "azure", GitProxySecret: "way", Secure: map[string]api.SecureValue{"token": {Name: "key"}},
		Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://a.example.com/site.git", TokenUser: "ann"}, Connection: &struct {
			Name string `json:"name"`
		}{"app"}}}
	repo.Status.Sync.LastRef = "0123456789012345678901234567890123456789"
	var seen []auth.Lookup
	from := auth.SourceFunc(func(_ context.Context, l auth.Lookup) (*auth.Credentials, error) {
		seen = append(seen, l)
		return &auth.Credentials{Username: "u", Password: "p"}, nil
	})
	r, err := Remote(t.Context(), "ns", "site", repo, from, false)
	if err != nil || len(r.Fallbacks) != 3 || len(seen) != 1 || r.LastSynced != repo.Status.Sync.LastRef || r.Down != nil {
		t.Fatalf("%+v, %v, %d look-ups", r, err, len(seen))
	}
	own := seen[0]
	for _, s := range r.Fallbacks {
		if _, err := s.Credentials(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	copied := own
	copied.URL = "https://A.example.com:443/copy.git"
	for i, want := range []auth.Lookup{{Namespace: "ns", URL: "https://b.example.com/site.git"}, copied, {Namespace: "ns", URL: "http://a.example.com/copy.git"}} {
		if got := seen[i+1]; !reflect.DeepEqual(got, want) {
			t.Errorf("mirror %d: %+v, want %+v", i+1, got, want)
		}
	}
	if own.Connection != "app" || own.ProxySecret != "way" || own.Provider != "azure" || own.Secure["token"] != "key" {
		t.Errorf("%+v", own)
	}
	if got := URLs(repo); len(got) != 4 || got[0] != "https://a.example.com/site.git" {
		t.Errorf("%q", got)
	}
	repo.GitMirrors = "nonsense"
	if _, err := Remote(t.Context(), "ns", "site", repo, from, false); git.KindOf(err) != git.Refused {
		t.Errorf("a wrong list: %v", err)
	}
}

// TestNoTokenAndMirrors: who makes the token may be away as the host is; a refusal is
// one all the same, and so is the API being away.
func TestNoTokenAndMirrors(t *testing.T) {
	t.Parallel()
	repo := api.Repository{GitMirrors: "https://b.example.com/site.git", Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: "https://a.example.com/site.git"}}}
	for _, c := range []struct {
		why  error
		down bool
	}{
		{&forge.Error{Kind: forge.Unavailable, Err: errors.New("503")}, true},
		{&forge.Error{Kind: forge.Unauthorized, Err: errors.New("401")}, false},
		{&forge.Error{Kind: forge.RateLimited, Err: errors.New("429")}, false},
		{errors.New("the file is open to all"), false},
		{&kube.UnavailableError{Err: errors.New("no route")}, false},
	} {
		from := auth.SourceFunc(func(context.Context, auth.Lookup) (*auth.Credentials, error) { return nil, c.why })
		for _, mirrors := range []string{"", repo.GitMirrors} {
			one := repo
			one.GitMirrors = mirrors
			r, err := Remote(t.Context(), "ns", "site", one, from, false)
			if down := c.down && mirrors != ""; (err == nil) != down || (r.Down != nil) != down {
				t.Errorf("%v with mirrors %q: %+v, %v", c.why, mirrors, r, err)
			}
		}
	}
}
