package screen

import (
	"net/netip"
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// cleanSnapshot returns a copy of s with all foreign text cleaned. Snapshots enter the screens
// only through it.
func cleanSnapshot(s *snapshot.Snapshot) *snapshot.Snapshot {
	out := *s
	out.Problem = text.Clean(s.Problem)
	out.Agent.Host, out.Agent.Version, out.Agent.Namespace, out.Agent.StorePath = text.Clean(s.Agent.Host),
		text.Clean(s.Agent.Version), text.Clean(s.Agent.Namespace), text.Clean(s.Agent.StorePath)
	out.API.Server, out.API.Error = text.Clean(s.API.Server), text.Clean(s.API.Error)
	out.Jobs = make([]snapshot.Job, len(s.Jobs))
	for i, j := range s.Jobs {
		out.Jobs[i] = cleanJob(j)
	}
	out.Repos = make([]snapshot.Repo, len(s.Repos))
	for i, r := range s.Repos {
		for _, p := range []*string{&r.Namespace, &r.Name, &r.Title, &r.Type, &r.URL, &r.Mirrors, &r.Branch, &r.Path, &r.Target,
			&r.Health, &r.SyncState, &r.SyncJob, &r.LastRef, &r.Runs, &r.Connection, &r.DeleteError} {
			*p = text.Clean(*p)
		}
		if r.Webhook != nil {
			r.Webhook = &snapshot.Webhook{ID: text.Clean(r.Webhook.ID), LastEvent: r.Webhook.LastEvent}
		}
		r.Contents = slices.Clone(r.Contents)
		for k := range r.Contents {
			r.Contents[k].Resource = text.Clean(r.Contents[k].Resource)
		}
		r.Conditions = slices.Clone(r.Conditions)
		for k := range r.Conditions {
			c := &r.Conditions[k]
			c.Type, c.Status, c.Reason, c.Message = text.Clean(c.Type), text.Clean(c.Status), text.Clean(c.Reason), text.Clean(c.Message)
		}
		out.Repos[i] = r
	}
	out.Sources = cleanSources(s.Sources)
	out.SourcesError = text.Clean(s.SourcesError)
	out.UnhealthyConnections = append([]snapshot.Connection(nil), s.UnhealthyConnections...)
	for i := range out.UnhealthyConnections {
		c := &out.UnhealthyConnections[i]
		c.Namespace, c.Name, c.Message = text.Clean(c.Namespace), text.Clean(c.Name), text.Clean(c.Message)
	}
	out.Events = cleanEvents(s.Events)
	return &out
}

func cleanJob(j snapshot.Job) snapshot.Job {
	for _, p := range []*string{&j.UID, &j.Namespace, &j.Name, &j.Owner, &j.Repository, &j.Action, &j.Detail, &j.State, &j.Message,
		&j.WaitReason, &j.Priority, &j.RefFrom, &j.RefTo, &j.Branch} {
		*p = text.Clean(*p)
	}
	if !(j.Progress <= 100) { // true for NaN too
		j.Progress = 100
	}
	j.Errors, j.Warnings = cleanAll(j.Errors), cleanAll(j.Warnings)
	if c := j.Commit; c != nil {
		j.Commit = &snapshot.Commit{Subject: text.Clean(c.Subject), Author: text.Clean(c.Author), At: c.At}
	}
	j.Steps = slices.Clone(j.Steps)
	for k := range j.Steps {
		j.Steps[k].Text = text.Clean(j.Steps[k].Text)
	}
	j.Log = cleanEvents(j.Log)
	j.URLs = slices.Clone(j.URLs)
	for k := range j.URLs {
		j.URLs[k].Name, j.URLs[k].URL = text.Clean(j.URLs[k].Name), text.Clean(j.URLs[k].URL)
	}
	j.Summary = slices.Clone(j.Summary)
	for k := range j.Summary {
		j.Summary[k].Kind = text.Clean(j.Summary[k].Kind)
	}
	return j
}

// cleanHistory cleans a page of the history. UIDs are only compared.
func cleanHistory(page snapshot.HistoryPage) snapshot.HistoryPage {
	page.Rows = slices.Clone(page.Rows)
	for i := range page.Rows {
		r := &page.Rows[i]
		for _, p := range []*string{&r.UID, &r.Namespace, &r.Name, &r.Repository, &r.Action, &r.State, &r.Message, &r.Agent, &r.RefTo,
			&r.Subject} {
			*p = text.Clean(*p)
		}
	}
	return page
}

// cleanDiagnostics cleans the diagnostics.
func cleanDiagnostics(c snapshot.DiagnosticsReport) snapshot.DiagnosticsReport {
	c.Store.Path = text.Clean(c.Store.Path)
	c.Watches, c.Tokens = slices.Clone(c.Watches), slices.Clone(c.Tokens)
	for i := range c.Watches {
		c.Watches[i].Kind, c.Watches[i].Error = text.Clean(c.Watches[i].Kind), text.Clean(c.Watches[i].Error)
	}
	for i := range c.Tokens {
		c.Tokens[i].Provider = text.Clean(c.Tokens[i].Provider)
	}
	return c
}

// cleanComparison cleans a comparison of Git commits. Tabs become blanks, which keep the
// indentation.
func cleanComparison(c snapshot.Comparison) snapshot.Comparison {
	c.Files = slices.Clone(c.Files)
	for i := range c.Files {
		f := &c.Files[i]
		f.Type, f.Path, f.From = text.Clean(f.Type), text.Clean(f.Path), text.Clean(f.From)
	}
	if c.Text != nil {
		txt := *c.Text
		txt.Form, txt.Lines = text.Clean(txt.Form), slices.Clone(txt.Lines)
		for i := range txt.Lines {
			l := &txt.Lines[i]
			l.Op, l.Text = text.Clean(l.Op), text.Clean(strings.ReplaceAll(l.Text, "\t", "    "))
		}
		c.Text = &txt
	}
	return c
}

// cleanFindings cleans the results of a test.
func cleanFindings(in []snapshot.Finding) []snapshot.Finding {
	out := make([]snapshot.Finding, len(in))
	for i, f := range in {
		out[i] = snapshot.Finding{Name: text.Clean(f.Name), Result: text.Clean(f.Result), Detail: text.Clean(f.Detail)}
	}
	return out
}

func cleanAll(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = text.Clean(s)
	}
	return out
}

func cleanEvents(in []snapshot.Event) []snapshot.Event {
	out := make([]snapshot.Event, len(in))
	for i, e := range in {
		e.Job, e.Repo, e.Text, e.Level = text.Clean(e.Job), text.Clean(e.Repo), text.Clean(e.Text), text.Clean(e.Level)
		out[i] = e
	}
	return out
}

// withoutLocalPorts removes the local ends of connections from an error. They change with each
// attempt: "read udp 10.0.0.2:50312->10.0.0.1:53: i/o timeout" would otherwise be a new error
// each time.
func withoutLocalPorts(txt string) string {
	if !strings.Contains(txt, "->") {
		return txt
	}
	words := strings.Split(txt, " ")
	for i, w := range words {
		near, far, _ := strings.Cut(w, "->")
		if _, err := netip.ParseAddrPort(near); err == nil && far != "" {
			words[i] = far
		}
	}
	return strings.Join(words, " ")
}
