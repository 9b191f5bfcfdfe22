package job

import (
	"encoding/json"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// printIssues prints errors and warnings of a job; left is how many are known but not kept.
func printIssues(e *command.Env, issues []state.Issue, left int64) error {
	t := command.Table{Columns: []string{"STATE", "REASON", "FILE", "KIND", "NAME", "MESSAGE"}, Wide: []string{"ACTION"}}
	for _, i := range issues {
		t.Add("", text.OrDash(i.Path), i.State, text.OrDash(i.Reason), text.OrDash(i.Path), text.OrDash(i.Kind), text.OrDash(i.Name),
			i.Message, text.OrDash(i.Action))
	}
	if left > 0 {
		e.Notef("first %s of %s; the others are counted but not kept", text.Thousands(len(issues)), text.Thousands(len(issues)+int(left)))
	}
	if len(issues) == 0 {
		e.Notef("the job has no errors and no warnings")
	}
	if issues == nil {
		issues = []state.Issue{}
	}
	return e.PrintList(issues, t)
}

// recordIssues prints those of a finished job: of the local history, else the ones that its status has room for.
func recordIssues(e *command.Env, rec state.Record) error {
	var status api.JobStatus
	if len(rec.Issues) > 0 || json.Unmarshal(rec.Status, &status) != nil {
		return printIssues(e, rec.Issues, rec.IssuesLeft)
	}
	return printIssues(e, statusIssues(status), 0)
}

// statusIssues returns the errors and warnings of a status. The texts of the summary name the files.
func statusIssues(status api.JobStatus) (out []state.Issue) {
	add := func(level, kind string, texts []string) {
		for _, txt := range texts {
			out = append(out, state.Issue{State: level, Kind: kind, Message: txt})
		}
	}
	for _, s := range status.Summary {
		add(api.StateError, s.Kind, s.Errors)
		add(api.StateWarning, s.Kind, s.Warnings)
	}
	if len(out) == 0 {
		add(api.StateError, "", status.Errors)
		add(api.StateWarning, "", status.Warnings)
	}
	return out
}
