package jobs

import (
	"encoding/json"
	"slices"
	"sort"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

// The attempts of a job that have ended without a result are listed on the Job
// itself, because the next one may be another agent's: the agent that ends the job
// puts the whole list into its record.

// Reasons why an attempt ends without a result. They are the state of the
// attempt in history and the reason of a dead letter.
const (
	attemptCrashed   = "crashed"   // its agent stopped, or its claim expired
	attemptTransient = "transient" // a failure that is not the fault of the job
	attemptTimeout   = "timeout"   // the run took longer than Options.Timeout
)

// Bounds of the list: an annotation travels with every write of the Job.
const (
	maxAttemptsKept = 20
	maxAttemptText  = 256 // bytes of one message
)

// attemptsEnded reads the list. A value that is not a list counts as none.
func attemptsEnded(job *unstructured.Unstructured) []state.Attempt {
	var out []state.Attempt
	if json.Unmarshal([]byte(api.Annotation(job, api.AnnoAttempts)), &out) != nil {
		return nil
	}
	return slices.DeleteFunc(out, func(a state.Attempt) bool { return a.N < 1 })
}

// endAttempt counts an attempt and lists it. The list is kept in order and has
// one entry for a number.
func endAttempt(job *unstructured.Unstructured, ended state.Attempt) {
	api.SetAnnotation(job, api.AnnoAttempt, strconv.Itoa(ended.N))
	list := addAttempt(attemptsEnded(job), ended)
	data, err := json.Marshal(list[max(0, len(list)-maxAttemptsKept):])
	if err != nil { // a year beyond 9999; the count is there
		return
	}
	api.SetAnnotation(job, api.AnnoAttempts, string(data))
}

func addAttempt(list []state.Attempt, ended state.Attempt) []state.Attempt {
	ended.Message = clip(ended.Message, maxAttemptText)
	list = slices.DeleteFunc(list, func(a state.Attempt) bool { return a.N == ended.N })
	list = append(list, ended)
	sort.SliceStable(list, func(i, j int) bool { return list[i].N < list[j].N })
	return list
}

// crashedAttempt describes an attempt whose agent is gone: the Job has when it
// began, its agent, and when the claim was last renewed.
func crashedAttempt(job *unstructured.Unstructured, n int, message string) state.Attempt {
	a := state.Attempt{N: n, Agent: api.Annotation(job, api.AnnoAgent), State: attemptCrashed, Message: message}
	if view, err := api.JobView(job); err == nil {
		a.Started = api.TimeOfMillis(view.Status.Started)
	}
	if at := claimTime(job); at != 0 {
		a.Finished = api.TimeOfMillis(at)
	}
	return a
}
