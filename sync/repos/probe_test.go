package repos

import (
	"context"
	"testing"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/testenv"
)

// TestProbeWithRevokedToken: a token from memory that the host does not take any
// more makes nothing unhealthy when there is a new one; one that is not from
// memory is tried once.
func TestProbeWithRevokedToken(t *testing.T) {
	t.Parallel()
	server := testenv.Git(t, testenv.GitOptions{User: "x-access-token", Password: "new"})
	origin := testenv.Repo(t, 1, 1)
	url := server.Serve("team/site.git", origin.Dir)
	mirrors, err := git.Open(t.TempDir(), git.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mirrors.Close()
	for _, kept := range []bool{true, false} {
		value, lookups := "old", 0
		c := &Controller{o: Options{Git: mirrors, Remotes: remoteFunc(func(context.Context, string, string, api.Repository) (git.Remote, error) {
			lookups++
			creds := &auth.Credentials{Username: "x-access-token", Password: value, Source: "connection default/app"}
			if kept {
				creds.Forget = func() { value = "new" }
			}
			return git.Remote{URL: url, Creds: creds, AllowInsecure: true}, nil
		})}}
		p, err := c.prepare(t.Context(), Key{"default", "site"}, api.Repository{Spec: api.RepositorySpec{Type: "git", Git: &api.GitBlock{URL: url}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		if kept && (p.err != nil || p.ref.Hash != origin.Head(t) || lookups != 2) {
			t.Errorf("with a new token: %v after %d look-ups", p.err, lookups)
		}
		if !kept && (git.KindOf(p.err) != git.Auth || lookups != 1) {
			t.Errorf("without one: %v after %d look-ups", p.err, lookups)
		}
	}
}
