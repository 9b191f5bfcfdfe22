package screen

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
	"limpet/tui/widget"
)

// sourcesSnapshot returns a site with Flux: a source in each state.
func sourcesSnapshot() *snapshot.Snapshot {
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	s := testSnapshot()
	packed := func(branch, commit string, size int64, ago time.Duration) *snapshot.Artifact {
		commit = strings.Repeat(commit, 5)
		return &snapshot.Artifact{Revision: branch + "@sha1:" + commit, Digest: "sha256:" + strings.Repeat("9f86d081", 8), Size: size,
			Updated: at(ago),
			URL:     "http://source-controller.flux-system.svc.cluster.local./gitrepository/flux-system/x/" + commit + ".tar.gz"}
	}
	ready := snapshot.Condition{Type: "Ready", Status: "True", Reason: "Succeeded", Message: "stored artifact for revision"}
	stored := snapshot.Condition{Type: "ArtifactInStorage", Status: "True", Reason: "Succeeded"}
	auth := "failed to checkout and determine revision: unable to list remote for 'https://git.site.example/ops/apps.git': " +
		"authentication required: HTTP Basic: Access denied"
	s.Sources = []snapshot.Source{
		{UID: "s1", Namespace: "flux-system", Name: "apps", URL: "https://git.site.example/ops/apps.git", Ref: "branch main",
			Interval: time.Minute, State: "failed", Reason: "AuthenticationFailed", Message: auth, Since: at(3 * time.Hour),
			Looked:   at(3 * time.Hour),
			Artifact: packed("main", "5d41aa90", 48_211, 27*time.Hour),
			Conditions: []snapshot.Condition{{Type: "Ready", Status: "False", Reason: "AuthenticationFailed", Message: auth},
				{Type: "FetchFailed", Status: "True", Reason: "AuthenticationFailed", Message: auth}, stored}},
		{UID: "s2", Namespace: "flux-system", Name: "base", URL: "https://git.site.example/ops/base.git", Ref: "semver >=1.0.0",
			Provider: "azure", Interval: 10 * time.Minute, State: "ready", Reason: "Succeeded",
			Message: "stored artifact for revision 'v1.4.2@sha1:77be21007'", Since: at(50 * time.Minute), Looked: at(4 * time.Minute),
			Verify: "HEAD", Verified: "HEAD", Artifact: packed("v1.4.2", "77be2100", 3<<20, 50*time.Minute), Handled: at(4 * time.Minute),
			Includes: []snapshot.Include{{Name: "common", From: "deploy", To: "base/common", Revision: "main@sha1:" +
				strings.Repeat("9c0ffeee", 5)}, {Name: "late"}},
			Conditions: []snapshot.Condition{ready, stored, {Type: "SourceVerified", Status: "True", Reason: "Succeeded",
				Message: "verified signature of commit with key '3CB12BA1'"}}},
		{UID: "s3", Namespace: "flux-system", Name: "clusters", URL: "https://git.site.example/ops/clusters.git", Ref: "branch main",
			Interval: 5 * time.Minute, State: "working", Reason: "Progressing",
			Message: "building artifact: new upstream revision 'main@sha1:4e55f01a'", Since: at(8 * time.Second), Waiting: true,
			Asked: at(9 * time.Second), Artifact: packed("main", "4e55f01a", 9_100, 26*time.Hour),
			Conditions: []snapshot.Condition{{Type: "Reconciling", Status: "True", Reason: "Progressing"},
				{Type: "Ready", Status: "Unknown", Reason: "Progressing"}}},
		{UID: "s4", Namespace: "flux-system", Name: "legacy", URL: "https://git.site.example/ops/legacy.git", Ref: "branch master",
			Interval: time.Hour, State: "ready", Suspended: true, Artifact: packed("master", "a1b2c3d4", 812, 400*time.Hour),
			Conditions: []snapshot.Condition{ready, stored}},
		{UID: "s5", Namespace: "team-a", Name: "fresh", URL: "ssh://git.site.example/a/fresh.git", Ref: "branch main",
			Interval: time.Minute, State: "pending", Message: "no controller has looked at it yet; is source-controller at work?",
			Since: at(4 * time.Minute)},
		{UID: "s6", Namespace: "team-a", Name: "wrong", URL: "https://git.site.example/a/wrong.git", Ref: "branch main",
			Interval: time.Minute, State: "stalled", Reason: "InvalidVerificationMode",
			Message: "cannot verify tag object's signature if a tag reference is not specified", Since: at(2 * time.Minute), Verify: "Tag",
			Conditions: []snapshot.Condition{{Type: "Stalled", Status: "True", Reason: "InvalidVerificationMode",
				Message: "cannot verify tag object's signature if a tag reference is not specified"}}},
	}
	return s
}

// ownSources is a site whose agent reconciles its sources, as its screens are shown with what they
// fetch.
func ownSources(t *testing.T) (s State, src *archive) {
	snap := sourcesSnapshot()
	snap.Agent.Sources = &snapshot.Controllers{Mode: "auto", State: snapshot.ControllersActive}
	snap.Sources[1].Next = noon.Add(9 * time.Minute)
	snap.Events = append(snap.Events, snapshot.Event{At: noon.Add(-50 * time.Minute), Level: "warn",
		Text: "source flux-system/base: GitOperationFailed: dial tcp 10.0.3.7:443: i/o timeout"},
		snapshot.Event{At: noon.Add(-49 * time.Minute), Level: "info", Text: "source flux-system/base: NewArtifact: stored artifact for commit 'Raise limits'"})
	src = &archive{comparison: snapshot.Comparison{From: "v1.4.1@sha1:" + strings.Repeat("5d41aa90", 5), To: snap.Sources[1].Artifact.Revision, All: 2,
		Files: []snapshot.FileChange{{Type: "modified", Path: "deploy/limits.yaml"}, {Type: "added", Path: "deploy/new.yaml"}},
		Text: &snapshot.TextChange{Form: "as text", Added: 1, Deleted: 1, Lines: []snapshot.TextLine{{Op: "@", Text: "@@ -1,1 +1,1 @@"},
			{Op: "-", Text: "cpu: 1"}, {Op: "+", Text: "cpu: 2"}}}}}
	for i, version := range []string{"v1.4.2@sha1:77be2100", "v1.4.1@sha1:5d41aa90", "v1.4.0@sha1:9c0ffee9"} {
		name, commit, _ := strings.Cut(version, ":")
		src.stored = append(src.stored, state.Artifact{UID: "s2", Revision: name + ":" + strings.Repeat(commit, 5), Digest: "sha256:" +
			strings.Repeat(commit, 8), Size: 3 << 20, Updated: noon.Add(-time.Duration(50+i*1000) * time.Minute), Subject: []string{"Raise limits",
			"Fix the probe of the gateway and its timeouts", "Release"}[i]})
	}
	return press(shown(snap, widget.Caps{Mono: true}), "6", "down"), src
}

func TestGoldenSources(t *testing.T) {
	t.Parallel()
	plain := widget.Caps{Mono: true}
	own, src := ownSources(t)
	at := func(keys ...string) State {
		s := own
		s.W, s.H = 80, 24
		for _, k := range keys {
			s = settle(t, press(s, k), src)
		}
		return s
	}
	offline := sourcesSnapshot()
	offline.API.Up, offline.API.Error, offline.API.Since = false, "dial tcp 10.0.3.7:443: i/o timeout", noon.Add(-372*time.Second)
	for _, tt := range []struct {
		name string
		s    State
		w, h int
	}{
		{"sources-80x24", press(shown(sourcesSnapshot(), plain), "6"), 80, 24},
		{"sources-140x40", press(shown(sourcesSnapshot(), plain), "6"), 140, 40},
		{"sources-40x10", press(shown(sourcesSnapshot(), plain), "6"), 40, 10},
		{"sources-offline-80x24", press(shown(offline, plain), "6"), 80, 24},
		{"sources-filter-80x24", press(shown(sourcesSnapshot(), plain), "6", "/", "s", "t", "a", "t", "e", ":", "f", "a", "enter"), 80, 24},
		{"sources-suspend-80x24", press(shown(sourcesSnapshot(), plain), "6", "s"), 80, 24},
		{"sources-help-80x24", press(shown(sourcesSnapshot(), plain), "6", "?"), 80, 24},
		{"source-80x24", press(shown(sourcesSnapshot(), plain), "6", "enter"), 80, 24},
		{"source-140x40", press(shown(sourcesSnapshot(), plain), "6", "down", "enter"), 140, 40},
		{"sources-own-60x15", own, 60, 15},
		{"sources-own-200x60", own, 200, 60},
		{"source-own-60x15", at("enter"), 60, 15},
		{"source-own-80x24", at("enter"), 80, 24},
		{"source-own-140x40", at("enter"), 140, 40},
		{"source-own-facts-80x24", at("enter", "tab"), 80, 24},
		{"source-own-log-80x24", at("l"), 80, 24},
		{"source-changes-80x24", at("d"), 80, 24},
		{"source-diff-60x15", at("d", "enter"), 60, 15},
		{"source-end-80x24", press(shown(sourcesSnapshot(), plain), "6", "down", "enter", "end"), 80, 24},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.s.W, tt.s.H = tt.w, tt.h
			frame := render(tt.s, tt.w, tt.h, plain)
			check(t, frame, tt.w, tt.h, plain)
			got := strip(frame)
			path := filepath.Join("..", "..", "testdata", "golden", "screen-"+tt.name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got+"\n" != string(want) {
				t.Errorf("the screen has changed; look at it and run with -update\ngot:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestSourceKeys: actions, their targets, and refusals.
func TestSourceKeys(t *testing.T) {
	t.Parallel()
	at := func(name string) State {
		s := press(shown(sourcesSnapshot(), widget.Caps{}), "6")
		for _, from := range s.sources.rows {
			if from.Name == name {
				s.sources.cursor = from.UID
			}
		}
		s.update()
		return s
	}
	ask := func(s State, keys ...string) ([]Action, string) {
		var out Outcome
		for _, k := range keys {
			s, out = s.Key(k, k)
		}
		return out.Actions, s.toast
	}
	act := func(v Verb, name, uid, namespace string) []Action {
		return []Action{{Verb: v, Name: name, UID: uid, Namespace: namespace}}
	}
	for name, c := range map[string]struct {
		s    State
		keys []string
		want []Action
		said string
	}{
		"p":              {at("apps"), []string{"p"}, act(snapshot.Reconcile, "apps", "s1", "flux-system"), "requested"},
		"p in detail":    {press(at("fresh"), "enter"), []string{"p"}, act(snapshot.Reconcile, "fresh", "s5", "team-a"), "requested"},
		"p of suspended": {at("legacy"), []string{"p"}, nil, "suspended"},
		"s asks":         {at("apps"), []string{"s", "enter"}, nil, ""},
		"s then no":      {at("apps"), []string{"s", "n"}, nil, ""},
		"s then yes":     {at("apps"), []string{"s", "y"}, act(snapshot.SuspendSource, "apps", "s1", "flux-system"), "requested"},
		"s resumes":      {at("legacy"), []string{"s"}, act(snapshot.ResumeSource, "legacy", "s4", "flux-system"), "requested"},
		"P is nothing":   {at("apps"), []string{"P"}, nil, ""},
		"x is nothing":   {at("apps"), []string{"x"}, nil, ""},
	} {
		got, said := ask(c.s, c.keys...)
		if !slices.Equal(got, c.want) || !strings.Contains(said, c.said) {
			t.Errorf("%s: %+v, said %q", name, got, said)
		}
	}
	if got, _ := ask(at("apps"), "*", "p"); len(got) != 5 { // one is suspended
		t.Errorf("all: %+v", got)
	}
	offline := sourcesSnapshot()
	offline.API.Up = false
	if got, said := ask(press(shown(offline, widget.Caps{}), "6"), "p"); got != nil || !strings.Contains(said, "API is unreachable") {
		t.Errorf("offline: %+v, %q", got, said)
	}
	looks := at("apps")
	looks.ReadOnly = true
	for _, key := range []string{"p", "s"} {
		if got, said := ask(looks, key); got != nil || !strings.Contains(said, "--read-only") {
			t.Errorf("read-only: %+v, %q", got, said)
		}
	}
	copies := func(s State, keys ...string) string {
		var out Outcome
		for _, k := range keys {
			s, out = s.Key(k, k)
		}
		return out.Copy
	}
	for key, want := range map[string]string{"u": "https://git.site.example/ops/apps.git", "c": strings.Repeat("5d41aa90", 5),
		"Y": "limpet source show apps"} {
		if got := copies(at("apps"), key); got != want {
			t.Errorf("%s copies %q", key, got)
		}
	}
	if got := copies(at("apps"), "u", "u"); !strings.HasPrefix(got, "http://source-controller.") {
		t.Errorf("u, u copies %q", got)
	}
}

// TestSourceRevisions: the changes of each revision, and what keys copy of it.
func TestSourceRevisions(t *testing.T) {
	t.Parallel()
	own, src := ownSources(t)
	own.W, own.H = 80, 24
	at := func(s State, keys ...string) (State, Outcome) {
		var out Outcome
		for _, k := range keys {
			s = settle(t, s, src)
			drawn(&s)
			s, out = s.Key(k, k)
		}
		return settle(t, s, src), out
	}
	newest, old := src.stored[0].Digest, src.stored[1].Digest
	for _, c := range []struct {
		keys []string
		want string // the revision that is compared with the one before it
	}{{[]string{"d"}, own.Snap.Sources[1].Artifact.Digest}, {[]string{"enter", "enter"}, newest}, {[]string{"enter", "down", "d"}, old}} {
		src.compared = nil
		s, _ := at(own, c.keys...)
		want := snapshot.CompareQuery{Namespace: "flux-system", Repository: "base", To: c.want, Source: true}
		if s.screen != screenChanges || len(src.compared) != 1 || src.compared[0] != want || s.tab() != screenSources {
			t.Errorf("%q: screen %d asks %+v", c.keys, s.screen, src.compared)
		}
		if _, out := at(s, "Y"); out.Copy != "limpet source diff base 5d41aa9 77be210" {
			t.Errorf("%q copies %q", c.keys, out.Copy)
		}
		if s, _ = at(s, "enter", "esc", "]", "esc", "esc"); c.keys[0] == "enter" && (s.screen != screenSource || s.source.page.subject.object.source.Name != "base") {
			t.Errorf("%q and back: screen %d, %s", c.keys, s.screen, s.source.page.subject.object.source.Name)
		}
	}
	for key, want := range map[string]string{"Y": "limpet source get base --revision 5d41aa9", "c": strings.Repeat("5d41aa90", 5)} {
		if _, out := at(own, "enter", "down", key); out.Copy != want {
			t.Errorf("%s copies %q", key, out.Copy)
		}
	}
	if s, out := at(press(shown(sourcesSnapshot(), widget.Caps{}), "6"), "d"); s.screen != screenSources || out.Actions != nil ||
		!strings.Contains(s.toast, "does not reconcile") {
		t.Errorf("of another controller: screen %d, %q", s.screen, s.toast)
	}
	src.stored[1].UID, src.stored[2].UID = "other", "other"
	if s, _ := at(own, "enter"); len(s.source.page.rows.rows) != 1 {
		t.Errorf("those of an object of the same name: %+v", s.source.page.rows.rows)
	}
}

// TestSourceIssues: a failing source is one issue that stays until it is read.
func TestSourceIssues(t *testing.T) {
	t.Parallel()
	count := func(s State) (n int) {
		for _, e := range s.issues.list {
			if e.kind == "source" {
				n += e.times
			}
		}
		return n
	}
	s := shown(sourcesSnapshot(), widget.Caps{})
	if count(s) != 2 || s.issues.unread() == 0 {
		t.Fatalf("%+v", s.issues.list)
	}
	if s = s.Show(sourcesSnapshot()); count(s) != 2 {
		t.Errorf("told again: %+v", s.issues.list)
	}
	again := sourcesSnapshot()
	again.Sources[0].Reason = "GitOperationFailed"
	if s = s.Show(again); count(s) != 3 {
		t.Errorf("another reason: %+v", s.issues.list)
	}
	e := s.issues.list[len(s.issues.list)-1]
	if next := nextCommand(&s.facts, e); next != "limpet source show apps" {
		t.Errorf("next: %s", next)
	}
	to := s
	if openIssue(&to, e); to.screen != screenSource || to.source.page.subject.object.source.UID != "s1" {
		t.Errorf("it opens %d %s", to.screen, to.source.page.subject.object.source.Name)
	}
}
