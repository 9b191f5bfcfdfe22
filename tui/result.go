package tui

import (
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// What a job that has ended came to, in the words of a row.

// jobResult is that of a job. That it is completed its state says.
func jobResult(j snapshot.Job) string {
	if !genericMessage(j.Message) {
		return j.Message
	}
	c := snapshot.Came{Errors: len(j.Errors), Warnings: len(j.Warnings), Counted: len(j.Summary) > 0}
	if complaints := jobIssues(j); len(complaints) == 1 {
		c.Only = complaints[0].text
	}
	for _, s := range j.Summary {
		c.Created, c.Updated, c.Deleted = c.Created+s.Create, c.Updated+s.Update, c.Deleted+s.Delete
	}
	return resultText(c)
}

// recordResult is that of a row of the history.
func recordResult(r snapshot.Past) string {
	if !genericMessage(r.Message) {
		return r.Message
	}
	if r.Came.Only != "" {
		r.Came.Only = parseIssue(r.State, r.Came.Only).text
	}
	return resultText(r.Came)
}

// resultText are the words: the one complaint, or how many there are and what was written.
func resultText(c snapshot.Came) string {
	if c.Only != "" {
		return c.Only
	}
	var parts []string
	if c.Errors > 0 {
		parts = append(parts, text.Plural(c.Errors, "error"))
	}
	if c.Warnings > 0 {
		parts = append(parts, text.Plural(c.Warnings, "warning"))
	}
	if wrote := changesText(c.Created, c.Updated, c.Deleted); wrote != "" {
		parts = append(parts, wrote)
	} else if c.Counted && len(parts) == 0 {
		parts = append(parts, "nothing to change")
	}
	return strings.Join(parts, ", ")
}

// genericMessage says that the message of a job tells no more than its state. Source:
// Grafana, as sync/jobs has it.
func genericMessage(message string) bool {
	return slices.Contains([]string{"completed successfully", "completed with warnings", "completed with errors"}, message)
}

// changesText is how many objects were made, changed and deleted: "+24 ~3 -1"; "" = none.
func changesText(created, updated, deleted int64) string {
	var parts []string
	for i, n := range []int64{created, updated, deleted} {
		if n > 0 {
			parts = append(parts, "+~-"[i:i+1]+text.Thousands(int(n)))
		}
	}
	return strings.Join(parts, " ")
}
