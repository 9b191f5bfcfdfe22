package identity

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
)

// TestWrongClockAtCodeCommit: keys that nobody has lent are signed with by the clock of
// CodeCommit, from its first refusal on, which costs one more request.
func TestWrongClockAtCodeCommit(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-20 * time.Hour, 26 * 365 * 24 * time.Hour} {
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
			asked := 0
			host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				there := time.Now().Add(skew)
				w.Header().Set("Date", there.UTC().Format(http.TimeFormat))
				_, password, _ := r.BasicAuth()
				at, err := time.Parse("20060102T150405Z", password[:min(16, len(password))])
				if err != nil || there.Sub(at).Abs() > 5*time.Minute {
					w.WriteHeader(status)
					return
				}
				w.WriteHeader(http.StatusNotFound) // it was let in
			}))
			t.Cleanup(host.Close)
			url := host.URL + "/v1/repos/site"
			p := here(t, "aws", url).with("AWS_ACCESS_KEY_ID", "AKID", "AWS_SECRET_ACCESS_KEY", canary, "AWS_REGION", "eu-west-1")
			p.owner = true
			m, err := git.Open(t.TempDir(), git.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			r := git.Remote{URL: "http://127.0.0.1:1/x", AllowInsecure: true}
			r.Fallbacks = []git.Fallback{{URL: url, Credentials: func(context.Context) (*auth.Credentials, error) { return p.must(t), nil }}}
			for want := 2; want < 4; want++ {
				if got := m.CheckFallbacks(t.Context(), r, gitref.Branch("main"))[0]; git.KindOf(got.Err) != git.NotFound || asked != want {
					t.Errorf("%s, %d: %v after %d requests", skew, status, got.Err, asked)
				}
			}
		}
	}
}
