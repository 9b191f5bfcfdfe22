package repos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/netx"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
)

// TestResultOfAProvider: a provider that makes no token is trouble with the
// credentials of the Repository, or with its Connection where it names one.
func TestResultOfAProvider(t *testing.T) {
	t.Parallel()
	for kind, reason := range map[netx.ErrorKind]string{
		netx.Unavailable: "ServiceUnavailable", netx.RateLimited: "RateLimited", netx.Unauthorized: "AuthenticationFailed",
		netx.Invalid: "InvalidSpec",
	} {
		err := &git.Error{Kind: git.Auth, Op: "resolve", Err: fmt.Errorf("look up credentials of site: %w",
			&netx.Error{Kind: kind, Op: "get a token", Identity: "managed identity", Endpoint: "GET http://169.254.169.254", Err: errors.New("x")})}
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

// answers is a Prober whose answers to the question for a push are given.
type answers struct {
	Prober
	push error
	n    int
}

func (a *answers) Pushable(context.Context, git.Remote) error { a.n++; return a.push }

// TestNoAnswerChangesNothing: a host that does not say leaves everything as it was reported
// the last time, and a Repository that is only read is not asked about.
func TestNoAnswerChangesNothing(t *testing.T) {
	t.Parallel()
	denied := &git.Error{Kind: git.ReadOnly, Err: errors.New("write permission denied: no"), Hint: "do it"}
	away := &git.Error{Kind: git.Timeout, Err: errors.New("silent")}
	asked := &answers{}
	p := &probe{probes: probes{git: asked}, access: &access{}}
	p.repo.Spec.Type, p.repo.Spec.Workflows = "git", []string{"branch"}
	for i, step := range []struct {
		push error
		code int
		text string
	}{
		{away, 0, "not known: silent"},
		{nil, 0, "the remote accepts a push"},
		{denied, 403, ""},
		{away, 403, ""},
		{&git.Error{Kind: git.NotFound, Err: errors.New("no such service")}, 403, ""},
		{nil, 0, "the remote accepts a push"},
		{&git.Error{Kind: git.Auth, Err: errors.New("a page")}, 0, "not known: a page"},
	} {
		asked.push = step.push
		found, err := p.checkWritable(t.Context(), nil)
		if err != nil || found.code != step.code || asked.n != i+1 {
			t.Errorf("%d: %+v %v", i, found, err)
		}
		if step.code == 0 {
			if p.access.describe() != step.text {
				t.Errorf("%d: %q", i, p.access.describe())
			}
			continue
		}
		const text = "secure.token: write permission denied: no (do it), or empty spec.workflows to have it read only"
		if e := found.errors[0]; e.Field != "secure.token" || e.Detail != text || e.Type != "FieldValueInvalid" ||
			found.ready().Reason != "AuthenticationFailed" {
			t.Errorf("%d: %+v", i, e)
		}
	}
	asked.n = 0
	p.repo.Spec.Workflows = nil
	if found, err := p.checkWritable(t.Context(), nil); err != nil || !found.ok() || asked.n > 0 {
		t.Errorf("read only: %+v %v, asked %d times", found, err, asked.n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.repo.Spec.Workflows = []string{"write"}
	if _, err := p.checkWritable(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestReadOnlyAccount: git http-backend refuses a push, by its account or to
// everybody. It is reported in one patch, and over when it is over.
func TestReadOnlyAccount(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		for _, c := range []struct {
			name, text string
			allow      func(r *rig, t *testing.T, push bool, account *atomic.Bool)
		}{
			{"account", "Write access to repository not granted.",
				func(_ *rig, _ *testing.T, push bool, account *atomic.Bool) { account.Store(push) }},
			{"repository", "write permission denied", func(r *rig, t *testing.T, push bool, account *atomic.Bool) {
				account.Store(true)
				r.repo.Git(t, "config", "http.receivepack", map[bool]string{true: "true", false: "false"}[push])
			}},
		} {
			t.Run(server+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				var account atomic.Bool
				r := newRig(t, server, func(r *rig, _ *Options) {
					r.git = testenv.Git(t, testenv.GitOptions{User: "git", Password: "right", MayPush: func(string) bool { return account.Load() }})
					r.creds.Store(&auth.Credentials{Password: "right"})
				})
				c.allow(r, t, false, &account)
				r.repo.Add(t, "a.json")
				r.create(map[string]any{"workflows": []any{"write", "branch"}}, nil)
				repo := r.until("the fault is reported", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
				ready := condition(repo, "Ready")
				if ready.Status != "False" || ready.Reason != "AuthenticationFailed" ||
					!strings.HasPrefix(ready.Message, "secure.token: write permission denied") || !strings.Contains(ready.Message, c.text) {
					t.Errorf("condition %+v", ready)
				}
				if h := repo.Status.Health; h.Healthy || h.Error != "health" || !slices.Equal(h.Message, []string{ready.Message}) {
					t.Errorf("health %+v", h)
				}
				if e := repo.Status.FieldErrors; len(e) != 1 || e[0].Field != "secure.token" || e[0].Detail != ready.Message {
					t.Errorf("fieldErrors %+v", e)
				}
				if s := repo.Status.Sync; s.State != "error" {
					t.Errorf("sync %+v", s)
				}
				if n := r.git.Reset(); n.InfoRefs != 1 || n.PushRefs != 1 || n.UploadPack > 0 {
					t.Errorf("asked %+v", n)
				}
				r.wrote(1)
				c.allow(r, t, true, &account)
				r.later(unhealthyFor + time.Second)
				repo = r.until("it is healthy again", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
				if c := condition(repo, "Ready"); c.Reason != "Available" || len(repo.Status.FieldErrors) > 0 || repo.Status.Sync.State != "pending" {
					t.Errorf("condition %+v, status %+v", c, repo.Status)
				}
			})
		}
	}
}

// TestProtectedBranch: GitHub's protection of the branch is in the way of the
// workflow "write" alone. What may not be read is not in the way.
func TestProtectedBranch(t *testing.T) {
	t.Parallel()
	const token = "github_pat_of_the_repository"
	host := forgetest.New(t, forgetest.Options{Speaks: []string{"github"}})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	r := newRig(t, "embedded", func(r *rig, o *Options) {
		r.creds.Store(&auth.Credentials{Username: "x-access-token", Password: token})
		o.Hosts = Forges(hosts)
	})
	r.git.Serve("team/site.git", r.repo.Dir)
	host.Behind(r.git)
	r.repo.Add(t, "a.json")
	protect := func(by string) {
		host.Add("team/site", forgetest.Repository{DefaultBranch: "main", Protected: map[string]string{"main": by}})
	}
	questions := func() int { return len(host.Requests()) }
	protect("reviews")
	host.Token(token, forgetest.Rights{Admin: true})
	r.create(map[string]any{"type": "github", "git": nil, "workflows": []any{"write"}, "sync": map[string]any{"enabled": false},
		"github": map[string]any{"url": host.URL + "/team/site.git", "branch": "main"}}, nil)
	repo := r.until("it is reported", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	if c := condition(repo, "Ready"); c.Status != "False" || c.Reason != "InvalidSpec" ||
		!strings.Contains(c.Message, "by pull requests only") || len(repo.Status.FieldErrors) != 1 ||
		repo.Status.FieldErrors[0].Field != "spec.workflows" {
		t.Errorf("condition %+v, fieldErrors %+v", c, repo.Status.FieldErrors)
	}
	r.wrote(1)
	again := func(what string, after time.Duration, healthy bool, asks int) {
		t.Helper()
		before, _ := r.get()
		questions()
		r.later(after)
		repo := r.until(what, func(repo api.Repository) bool { return repo.Status.Health.Checked > before.Status.Health.Checked })
		if repo.Status.Health.Healthy != healthy {
			t.Errorf("%s: %+v", what, repo.Status.Health)
		}
		if n := questions(); n != asks {
			t.Errorf("%s: the host was asked %d times, want %d", what, n, asks)
		}
	}
	protect("locked")
	again("it is locked", unhealthyFor+time.Second, false, 1)
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusBadGateway} {
		host.Fault(func(*http.Request) *forgetest.Answer {
			return &forgetest.Answer{Status: status, Body: `{"message":"no"}`}
		})
		again("it cannot be read", unhealthyFor+time.Second, true, 1)
		again("and is not asked for at once again", healthyFor+time.Second, true, 0)
		host.Fault(nil)
		r.merge(`{"spec":{"title":"Another"}}`) // nothing is remembered of another spec
		r.until("it is locked again", func(repo api.Repository) bool { return !repo.Status.Health.Healthy })
		r.merge(`{"spec":{"title":"Site"}}`)
		r.until("the change is seen", func(repo api.Repository) bool { return repo.Status.ObservedGeneration%2 == 1 })
	}
	r.merge(`{"spec":{"workflows":["branch"]}}`)
	questions()
	r.until("branches of people are not in its way", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	if n := questions(); n > 0 {
		t.Errorf("the host was asked %d times", n)
	}
}
