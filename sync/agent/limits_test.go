package agent

import (
	"testing"

	"limpet/sync/apiserver"
	"limpet/sync/repos"
	"limpet/sync/resources"
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

// TestParallelWrites: pulls write three times as much at once into the embedded API as elsewhere.
func TestParallelWrites(t *testing.T) {
	t.Parallel()
	embedded := &clients{embedded: &apiserver.Server{}}
	for name, c := range map[string]struct {
		cfg  Config
		to   *clients
		want int
	}{
		"embedded":                {Config{}, embedded, 3 * resources.DefaultParallel},
		"embedded, limited":       {Config{Limits: Limits{Parallel: 2}}, embedded, 6},
		"dashboards of a Grafana": {Config{Dashboards: "https://grafana"}, embedded, 0},
		"another server":          {Config{}, &clients{}, 0},
		"another server, limited": {Config{Limits: Limits{Parallel: 4}}, &clients{}, 4},
	} {
		if got := pullOptions(c.cfg, c.to, &access{}).Parallel; got != c.want {
			t.Errorf("%s: %d writes at once, want %d", name, got, c.want)
		}
	}
}
