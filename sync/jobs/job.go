package jobs

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// Reading and changing a Job object. Writers change what they own and leave every other member as
// it is: the API replaces whole objects.

// jobRef identifies a job in events, logs and records.
type jobRef struct {
	queue.Key
	uid, repository, action string
	attempt                 int
}

func (j jobRef) repo() queue.RepoKey {
	return queue.RepoKey{Namespace: j.Namespace, Repository: j.repository}
}

func refOf(u *unstructured.Unstructured) jobRef {
	return jobRef{
		Key:        keyOf(u),
		uid:        api.Meta(u, "uid"),
		repository: api.Spec(u, "repository"),
		action:     api.Spec(u, "action"),
		attempt:    attemptsOf(u) + 1,
	}
}

func keyOf(u *unstructured.Unstructured) queue.Key {
	return queue.Key{Namespace: api.Meta(u, "namespace"), Name: api.Meta(u, "name")}
}

// repoOf reads the spec, because jobs that were created directly lack the repository label.
func repoOf(u *unstructured.Unstructured) queue.RepoKey {
	return queue.RepoKey{Namespace: api.Meta(u, "namespace"), Repository: api.Spec(u, "repository")}
}

// claimed reports whether the job has a claim. One label of the two is enough.
func claimed(u *unstructured.Unstructured) bool {
	return api.Label(u, api.LabelClaim) != "" || api.Label(u, api.LabelClaimOwner) != ""
}

// owned reports whether u is the very job with that UID under that token.
func owned(u *unstructured.Unstructured, uid, token string) bool {
	return api.Meta(u, "uid") == uid && token != "" && api.Label(u, api.LabelClaimOwner) == token
}

// claimTime is the server time in the claim label, in milliseconds; 0 when it cannot be read.
func claimTime(u *unstructured.Unstructured) int64 {
	return millisOf(api.Label(u, api.LabelClaim))
}

func setClaim(u *unstructured.Unstructured, millis int64, token string) {
	api.SetLabel(u, api.LabelClaim, strconv.FormatInt(millis, 10))
	api.SetLabel(u, api.LabelClaimOwner, token)
}

func stripClaim(u *unstructured.Unstructured) {
	api.SetLabel(u, api.LabelClaim, "")
	api.SetLabel(u, api.LabelClaimOwner, "")
}

// tokenPrefix begins the token of a claim: then come the agent, which has no dot, a dot, and a text
// that comes only once.
const tokenPrefix = "limpet-"

// agentOf returns the agent that has made a claim; "" when the token does not name it, as those of
// Grafana's drivers do not.
func agentOf(token string) string {
	if rest, ok := strings.CutPrefix(token, tokenPrefix); ok {
		agent, _, _ := strings.Cut(rest, ".")
		return agent
	}
	return ""
}

// attemptsOf is how many claims of the job have ended without a result.
func attemptsOf(u *unstructured.Unstructured) int {
	n, err := strconv.Atoi(api.Annotation(u, api.AnnoAttempt))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// notBefore is the server time in milliseconds before which the job must not be claimed, or 0.
func notBefore(u *unstructured.Unstructured) int64 {
	return millisOf(api.Annotation(u, api.AnnoNotBefore))
}

// millisOf reads a time in milliseconds; 0 when it is none.
func millisOf(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func setNotBefore(u *unstructured.Unstructured, millis int64) {
	api.SetAnnotation(u, api.AnnoNotBefore, strconv.FormatInt(millis, 10))
}

// cancelReason returns the reason to stop that an object asks for, "" for none.
func cancelReason(u *unstructured.Unstructured) string {
	return stopReason(api.Annotation(u, api.AnnoCancel), api.Meta(u, "deletionTimestamp"))
}

// stopReason returns the reason to stop from the annotation that asks for it and the time of the
// deletion, "" for none.
func stopReason(annotation, deletion string) string {
	if annotation == "" && deletion != "" {
		return "the job is being deleted"
	}
	return annotation
}

// statusFields are the members of status that a leaseholder owns. url is kept when a status has
// none.
var statusFields = []string{"state", "started", "finished", "message", "errors", "warnings", "progress", "summary"}

// setStatus writes s into the status of u, keeps members that are not ours, and counts the write in
// progressUpdates.
func setStatus(u *unstructured.Unstructured, s api.JobStatus) {
	status := statusOf(u)
	fresh, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if err != nil {
		panic("jobs: internal error: status cannot be encoded: " + err.Error())
	}
	for _, name := range statusFields {
		if v, ok := fresh[name]; ok {
			status[name] = v
		} else {
			delete(status, name)
		}
	}
	if v, ok := fresh["url"]; ok {
		status["url"] = v
	}
	status["progressUpdates"] = number(status["progressUpdates"]) + 1
}

// setState changes only the state of the status.
func setState(u *unstructured.Unstructured, state string) {
	status := statusOf(u)
	status["state"] = state
	status["progressUpdates"] = number(status["progressUpdates"]) + 1
}

// statusOf returns the status of u, which it makes if there is none.
func statusOf(u *unstructured.Unstructured) map[string]any {
	status, _ := u.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		u.Object["status"] = status
	}
	return status
}

func number(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// raw encodes one member of an object, or returns nil.
func raw(u *unstructured.Unstructured, member string) json.RawMessage {
	v, ok := u.Object[member]
	if !ok {
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return data
}

// What the cache of the watch knows of a job without making an object of it.
var (
	pathClaim      = kube.PathTo("metadata", "labels", api.LabelClaim)
	pathClaimOwner = kube.PathTo("metadata", "labels", api.LabelClaimOwner)
	pathRepository = kube.PathTo("spec", "repository")
	pathPriority   = kube.PathTo("metadata", "annotations", api.AnnoPriority)
	pathAction     = kube.PathTo("spec", "action")
	pathNotBefore  = kube.PathTo("metadata", "annotations", api.AnnoNotBefore)
	pathCancel     = kube.PathTo("metadata", "annotations", api.AnnoCancel)
	pathDeletion   = kube.PathTo("metadata", "deletionTimestamp")
)

// cachedClaimed is claimed for a cached job.
func cachedClaimed(job kube.Object) bool {
	return job.Text(pathClaim) != "" || job.Text(pathClaimOwner) != ""
}

// shownJob is what a handler of the watch reads of a Job. Its zero value is no job. Each agent sees
// each change of each job, so the objects are not decoded.
type shownJob struct {
	jobRef    // without its attempt
	owner     string
	claimed   bool
	claimedAt int64 // of the claim, in milliseconds; 0 = not readable
	notBefore int64
	cancel    string // the request to stop
}

// shown reads a Job of the watch.
func shown(o kube.Object) shownJob {
	return shownJob{
		jobRef: jobRef{
			Key: queue.Key{Namespace: o.Namespace(), Name: o.Name()}, uid: o.UID(),
			repository: o.Text(pathRepository), action: o.Text(pathAction),
		},
		owner:     o.Text(pathClaimOwner),
		claimed:   cachedClaimed(o),
		claimedAt: millisOf(o.Text(pathClaim)),
		notBefore: millisOf(o.Text(pathNotBefore)),
		cancel:    stopReason(o.Text(pathCancel), o.Text(pathDeletion)),
	}
}

// Reasons why an attempt ends without a result. They are the state of the attempt in history and
// the reason of a dead letter.
//
// The attempts of a job that have ended without a result are listed on the Job itself, because the
// next one may be another agent's: the agent that ends the job puts the whole list into its record.
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

// endAttempt counts an attempt and lists it. The list is kept in order and has one entry for a
// number.
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
	ended.Message = text.Clip(ended.Message, maxAttemptText)
	list = slices.DeleteFunc(list, func(a state.Attempt) bool { return a.N == ended.N })
	list = append(list, ended)
	slices.SortStableFunc(list, func(a, b state.Attempt) int { return a.N - b.N })
	return list
}

// crashedAttempt describes an attempt whose agent is gone: the Job has when it began, its agent,
// and when the claim was last renewed.
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
