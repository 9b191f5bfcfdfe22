package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// site is an agent with something of everything, at one moment.
type site struct {
	live   *snapshot.Snapshot
	hours  []snapshot.Hour
	recent []state.Record
	err    error
}

func (s *site) Next(context.Context, uint64) (*snapshot.Snapshot, error) { return s.live, s.err }

func (s *site) Hours(time.Time) []snapshot.Hour { return s.hours }

func (s *site) History(context.Context, state.Query) ([]state.Record, error) { return s.recent, nil }

// newSite has a repository that fails, one that works, sources, jobs of each kind and a day of
// history.
func newSite() *site {
	now := time.Now().UTC()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	s := &site{live: &snapshot.Snapshot{
		At: now,
		Agent: snapshot.Agent{Host: "site-7", PID: 4121, Version: "1.0.0", Started: ago(290 * time.Hour), Drivers: 3, Claims: 2,
			StorePath: "/var/lib/limpet/limpet.db", StoreSize: 61 << 20, History: 41288, RSS: 38 << 20,
			Controllers: snapshot.Controllers{State: snapshot.ControllersActive},
			Sources:     &snapshot.Controllers{State: snapshot.ControllersActive},
			Warnings:    []string{"telemetry is on"}},
		API:    snapshot.API{Server: "https://grafana.example:6446", Up: true, Synced: true, Since: ago(time.Hour)},
		Counts: snapshot.Counts{Working: 2, Pending: 11, Resting: 1, Elsewhere: 1},
		Jobs: []snapshot.Job{
			{UID: "1", Name: "pull-7f3k2", Repository: "team-dash", Action: "pull", Detail: "full", State: "working", Progress: 71, Done: 205,
				Total: 288, Message: "replicating dashboards/network/edge.json", Created: ago(42 * time.Second), Owner: "this"},
			{UID: "2", Name: "move-q0p4", Repository: "team-dash", Action: "move", State: "working", Progress: -1, Created: ago(time.Minute)},
			{UID: "3", Name: "push-k2m9", Repository: "lab-west", Action: "push", State: "pending", Created: ago(31 * time.Second),
				RetryAt: now.Add(time.Minute), Attempt: 2},
			{UID: "4", Name: "pull-z8z8", Repository: "lab-east", Action: "pull", Detail: "incr", State: "pending", Created: ago(time.Hour),
				WaitReason: "no credentials for the repository"},
			{UID: "5", Name: "pr-44dd1", Repository: "team-dash", Action: "pr", Detail: "#481", State: "working", Owner: "other", Progress: 98},
		},
		Repos: []snapshot.Repo{
			{Namespace: "default", Name: "lab-east", Type: "git", URL: "https://git.lab/obs/east.git", Branch: "main", Enabled: true,
				Checked: ago(39 * time.Second), Health: "401 bad credentials", SyncState: "error", LastRef: "5d41aa9c0ffee", Synced: ago(3 * time.Hour),
				Next: now.Add(time.Minute), Resources: 288, Runs: "sssssssssssssssssweeeeee"},
			{Namespace: "default", Name: "team-dash", Type: "github", URL: "https://github.com/example/dashboards", Branch: "main", Healthy: true,
				Enabled: true, Checked: ago(time.Minute), SyncState: "success", LastRef: "a1b2c3d4e5f6", Synced: ago(42 * time.Second),
				Next: now.Add(4 * time.Minute), Resources: 1288, Runs: "ss.s.swss.cs.sss.sss..ss"},
		},
		Sources: []snapshot.Source{
			{Namespace: "default", Name: "site-config", URL: "https://git.lab/obs/config.git", Ref: "branch main", State: snapshot.SourceReady,
				Interval: time.Minute, Artifact: &snapshot.Artifact{Revision: "main@sha1:5d41aa9c0ffee0000000000000000000000000ee", Size: 52341,
					Updated: ago(time.Hour)}},
			{Namespace: "default", Name: "firmware", URL: "ssh://git@git.lab/obs/firmware.git", Ref: "semver >=1.0.0", State: snapshot.SourceFailed,
				Reason: "GitOperationFailed", Message: "dial tcp 10.0.3.7:22: i/o timeout", Interval: time.Hour},
		},
		Events: []snapshot.Event{
			{At: ago(2 * time.Minute), Level: "info", Text: "claimed"},
			{At: ago(90 * time.Second), Level: "error", Job: "pull-y7c1", Repo: "lab-east", Text: "401 bad credentials"},
			{At: ago(time.Second), Level: "warn", Repo: "team-dash", Text: "the API answers slowly"},
		},
	}}
	for i := range 24 {
		s.hours = append(s.hours, snapshot.Hour{From: ago(time.Duration(23-i) * time.Hour).Truncate(time.Hour), Success: 55 + 7*(i%5),
			Warning: i % 7 / 5, Error: max(0, i-17) * 5, Cancelled: i % 11 / 10, Seconds: float64(120 + 40*(i%6))})
	}
	for i, end := range []string{"error", "success", "warning", "success", "cancelled"} {
		s.recent = append(s.recent, state.Record{UID: end, Name: "pull-" + end, Repository: "lab-east", Action: "pull", State: end, RefTo: "5d41aa9c0f",
			Started: ago(time.Duration(i+1)*time.Minute + 2100*time.Millisecond), Finished: ago(time.Duration(i+1) * time.Minute),
			Message: "ended in " + end})
	}
	return s
}

func (s *site) page() *Page {
	return &Page{Snapshots: s, Hours: s, History: s, Address: "edge.example:9440"}
}

func get(h http.Handler, host, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestStatus: the JSON has the snapshot, what is wrong and the hours; what fails decides.
func TestStatus(t *testing.T) {
	t.Parallel()
	w := get(newSite().page(), "127.0.0.1:9440", "/status.json")
	var got Status
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("%d %v: %s", w.Code, err, w.Body)
	}
	if got.OK || len(got.Why) != 3 || len(got.Warnings) != 1 || len(got.Hours) != 24 || len(got.Recent) != 5 || len(got.Live.Jobs) != 5 {
		t.Errorf("%+v", got)
	}
	quiet := &site{live: &snapshot.Snapshot{At: time.Now(), API: snapshot.API{Up: true}}}
	if w := get(quiet.page(), "localhost", "/status.json"); !strings.Contains(w.Body.String(), `"ok":true`) {
		t.Errorf("%s", w.Body)
	}
	quiet.err = errors.New("it starts")
	if w := get(quiet.page(), "localhost", "/"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a snapshot: %d", w.Code)
	}
}

// TestHosts: names that may be those of another site are refused, so that none reads the page
// through a browser.
func TestHosts(t *testing.T) {
	t.Parallel()
	p := newSite().page()
	for host, want := range map[string]int{
		"127.0.0.1:9440": 200, "[::1]:9440": 200, "localhost:9440": 200, "LOCALHOST": 200, "10.1.2.3": 200, "edge.example:9440": 200,
		"evil.example": 421, "localhost.evil.example:9440": 421, "127.0.0.1.evil.example": 421, "": 421,
	} {
		for _, path := range []string{"/", "/status.json"} {
			if w := get(p, host, path); w.Code != want {
				t.Errorf("%q %s: %d, want %d", host, path, w.Code, want)
			}
		}
	}
	if w := get(p, "localhost", "/etc/passwd"); w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
}

// TestNoSecrets: neither user information in a URL nor a secret that the agent knows nor a token of
// a well-known form leaves by any text of the snapshot; the JSON stays valid.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	text.RegisterSecret([]byte(`quoted"secret<&>`))
	secrets := []string{"hunter2x", `quoted"secret`, "quoted\\\"secret", "quoted&#34;secret", "glpat-abcdefghijklmnop", "MIIEvQIBADANBg"}
	leak := `https://user:hunter2x@git.lab/x quoted"secret<&> glpat-abcdefghijklmnop -----BEGIN PRIVATE KEY-----
MIIEvQIBADANBg`
	s := newSite()
	s.live.Problem, s.live.SourcesError, s.live.API.Error, s.live.Agent.Warnings = leak, leak, leak, []string{leak}
	s.live.Jobs[0].Message, s.live.Jobs[0].Errors, s.live.Jobs[3].WaitReason = leak, []string{leak}, leak
	s.live.Jobs[0].Log = []snapshot.Event{{Text: leak}}
	s.live.Repos[0].URL, s.live.Repos[0].Health, s.live.Repos[0].Title = leak, leak, leak
	s.live.Sources[1].URL, s.live.Sources[1].Message, s.live.Events[1].Text, s.recent[0].Message = leak, leak, leak, leak
	p := s.page()
	for _, path := range []string{"/", "/status.json"} {
		body := get(p, "localhost", path).Body.Bytes()
		for _, secret := range secrets {
			if bytes.Contains(body, []byte(secret)) {
				t.Errorf("%s has %s", path, secret)
			}
		}
		if path != "/" && !json.Valid(body) {
			t.Errorf("no JSON: %s", body)
		}
	}
}

// TestPage: foreign texts are texts, the policy allows the own style and nothing else, and nothing
// is loaded from anywhere.
func TestPage(t *testing.T) {
	t.Parallel()
	s := newSite()
	s.live.Repos[0].Name = `<script>alert(1)</script>`
	s.live.Jobs[1].Name = `" onload="alert(1)`
	w := get(s.page(), "localhost", "/")
	body := w.Body.String()
	if w.Code != 200 || !strings.HasSuffix(strings.TrimSpace(body), "</html>") {
		t.Fatalf("%d %s", w.Code, body)
	}
	csp := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(csp, "default-src 'none'; img-src data:; style-src 'sha256-") || strings.Contains(csp, "script") ||
		strings.Contains(csp, "unsafe") {
		t.Error(csp)
	}
	if found := regexp.MustCompile(`(?i)<script|<iframe|<img|<form|\son\w+=|\sstyle=|@import|url\(|src=|ZgotmplZ`).FindString(
		strings.ReplaceAll(body, `&#34; onload=`, "")); found != "" {
		t.Errorf("the page has %s", found)
	}
	for _, text := range []string{"site-7", "degraded", "pull-7f3k2", "205 of 288", "401 bad credentials", "team-dash", "site-config",
		"main@5d41aa9", "3h ago", `<progress max="100" value="71">`, "another agent has it", "pull-cancelled"} {
		if !strings.Contains(body, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	if n := strings.Count(body, `<svg`); n != 4 {
		t.Errorf("%d plots", n)
	}
}

// TestBounds: a page of very many rows is bounded, and begins with those that fail.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := newSite()
	var many []snapshot.Repo
	for range 2 * maxRows {
		many = append(many, snapshot.Repo{Namespace: "default", Name: "many", SyncState: api.StateSuccess, Healthy: true})
	}
	s.live.Repos = append(many, s.live.Repos...)
	body := get(s.page(), "localhost", "/").Body.String()
	if strings.Count(body, "<b>many</b>") != maxRows-1 || !strings.Contains(body, "<b>lab-east</b>") || !strings.Contains(body, "202 more in") {
		t.Error("the page is not bounded")
	}
}

// BenchmarkPage is a look at an agent of a thousand repositories and jobs.
func BenchmarkPage(b *testing.B) {
	s := newSite()
	for i := range 1000 {
		r, j := s.live.Repos[i%2], s.live.Jobs[i%4]
		r.Name, j.UID = fmt.Sprint("repository-", i), fmt.Sprint(i)
		s.live.Repos, s.live.Jobs = append(s.live.Repos, r), append(s.live.Jobs, j)
		s.live.Events = append(s.live.Events[max(0, len(s.live.Events)-199):], snapshot.Event{Text: "pulled", Level: "info"})
	}
	for b.Loop() {
		p := s.page()
		if w := get(p, "localhost", "/"); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
