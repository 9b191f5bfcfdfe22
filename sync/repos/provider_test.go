package repos

import (
	"errors"
	"fmt"
	"testing"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/git"
)

// TestFindingOfAnIdentity: a provider that makes no token is trouble with the
// credentials of the Repository, or with its Connection where it names one.
func TestFindingOfAnIdentity(t *testing.T) {
	t.Parallel()
	for kind, reason := range map[forge.ErrorKind]string{
		forge.Unavailable: "ServiceUnavailable", forge.RateLimited: "RateLimited", forge.Unauthorized: "AuthenticationFailed", forge.Invalid: "InvalidSpec",
	} {
		err := &git.Error{Kind: git.Auth, Op: "resolve", Err: fmt.Errorf("look up credentials of site: %w", &forge.Error{Kind: kind, Op: "get a token", Identity: "managed identity", Endpoint: "GET http://169.254.169.254", Err: errors.New("x")})}
		repo := api.Repository{Spec: api.RepositorySpec{Type: "git"}}
		for _, where := range []string{"secure.token", "spec.connection.name"} {
			f := remoteResult(repo, err)
			if got := f.ready(); got.Reason != reason || len(f.errors) != 1 || f.errors[0].Field != where {
				t.Errorf("%s: reason %s, errors %+v, want %s at %s", kind, got.Reason, f.errors, reason, where)
			}
			repo.Spec.Connection = &struct {
				Name string `json:"name"`
			}{"app"}
		}
	}
}
