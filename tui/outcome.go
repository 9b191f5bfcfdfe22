package tui

import (
	"slices"
	"strings"

	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// What a job that has ended came to, in the words of a row.

// outcome is that of a job. That it is completed its state says.
func outcome(j snapshot.Job) string {
	if !commonplace(j.Message) {
		return j.Message
	}
	c := snapshot.Came{Errors: len(j.Errors), Warnings: len(j.Warnings), Counted: len(j.Summary) > 0}
	if complaints := complaintsOf(j); len(complaints) == 1 {
		c.Only = complaints[0].text
	}
	for _, s := range j.Summary {
		c.Created, c.Updated, c.Deleted = c.Created+s.Create, c.Updated+s.Update, c.Deleted+s.Delete
	}
	return cameTo(c)
}

// pastOutcome is that of a row of the history.
func pastOutcome(r snapshot.Past) string {
	if !commonplace(r.Message) {
		return r.Message
	}
	if r.Came.Only != "" {
		r.Came.Only = readComplaint(r.State, r.Came.Only).text
	}
	return cameTo(r.Came)
}

// cameTo are the words: the one complaint, or how many there are and what was written.
func cameTo(c snapshot.Came) string {
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
	if wrote := wroteText(c.Created, c.Updated, c.Deleted); wrote != "" {
		parts = append(parts, wrote)
	} else if c.Counted && len(parts) == 0 {
		parts = append(parts, "nothing to change")
	}
	return strings.Join(parts, ", ")
}

// commonplace says that the message of a job tells no more than its state. Source:
// Grafana, as sync/jobs has it.
func commonplace(message string) bool {
	return slices.Contains([]string{"completed successfully", "completed with warnings", "completed with errors"}, message)
}

// wroteText is how many objects were made, changed and deleted: "+24 ~3 -1"; "" = none.
func wroteText(created, updated, deleted int64) string {
	var parts []string
	for i, n := range []int64{created, updated, deleted} {
		if n > 0 {
			parts = append(parts, "+~-"[i:i+1]+text.Thousands(int(n)))
		}
	}
	return strings.Join(parts, " ")
}
