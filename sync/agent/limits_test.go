package agent

import (
	"testing"

	"limpet/sync/repos"
)

// TestLimits checks that an unset limit is none on the embedded API, and elsewhere that of the
// status.
func TestLimits(t *testing.T) {
	t.Parallel()
	none, three := int64(0), int64(3)
	for _, c := range []struct {
		limits   Limits
		embedded bool
		want     repos.Quota
	}{
		{Limits{}, true, repos.Quota{}},
		{Limits{}, false, repos.Quota{Repositories: repos.Stated, Resources: repos.Stated}},
		{Limits{Repositories: &none, Resources: &three}, false, repos.Quota{Resources: 3}},
		{Limits{Repositories: &three}, true, repos.Quota{Repositories: 3}},
	} {
		if got := c.limits.quota(c.embedded); got != c.want {
			t.Errorf("%+v, embedded %t: %+v, want %+v", c.limits, c.embedded, got, c.want)
		}
	}
}
