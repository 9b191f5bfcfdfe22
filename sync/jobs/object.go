package jobs

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"limpet/sync/api"
)

// Reading and changing a Job object. Writers change what they own and leave
// every other member as it is: the API replaces whole objects.

// deathMessage is the text of a job whose last claim has expired. Source:
// Grafana's cleanup.
const deathMessage = "Job failed due to lease expiry - worker may have crashed or lost connection"

func keyOf(u *unstructured.Unstructured) key {
	return key{api.Meta(u, "namespace"), api.Meta(u, "name")}
}

// laneOf goes by the spec, because jobs that were created directly lack the
// repository label.
func laneOf(u *unstructured.Unstructured) lane {
	return lane{api.Meta(u, "namespace"), api.Spec(u, "repository")}
}

func aboutOf(u *unstructured.Unstructured) about {
	return about{key: keyOf(u), uid: api.Meta(u, "uid"), repository: api.Spec(u, "repository"), action: api.Spec(u, "action"), attempt: attemptsOf(u) + 1}
}

// claimed says whether somebody has taken the job. One label of the two is enough.
func claimed(u *unstructured.Unstructured) bool {
	return api.Label(u, api.LabelClaim) != "" || api.Label(u, api.LabelClaimOwner) != ""
}

// owned says whether u is the very job with that UID under that token.
func owned(u *unstructured.Unstructured, uid, token string) bool {
	return api.Meta(u, "uid") == uid && token != "" && api.Label(u, api.LabelClaimOwner) == token
}

func setClaim(u *unstructured.Unstructured, millis int64, token string) {
	api.SetLabel(u, api.LabelClaim, strconv.FormatInt(millis, 10))
	api.SetLabel(u, api.LabelClaimOwner, token)
}

func stripClaim(u *unstructured.Unstructured) {
	api.SetLabel(u, api.LabelClaim, "")
	api.SetLabel(u, api.LabelClaimOwner, "")
}

// attemptsOf is how many claims of the job have ended without a result.
func attemptsOf(u *unstructured.Unstructured) int {
	n, err := strconv.Atoi(api.Annotation(u, api.AnnoAttempt))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// notBefore is the server time in milliseconds before which the job rests, or 0.
func notBefore(u *unstructured.Unstructured) int64 {
	n, _ := strconv.ParseInt(api.Annotation(u, api.AnnoNotBefore), 10, 64)
	return n
}

// statusFields are the members of status that a leaseholder owns. url is kept
// when a status has none.
var statusFields = []string{"state", "started", "finished", "message", "errors", "warnings", "progress", "summary"}

// setStatus writes s into the status of u, keeps members that are not ours, and
// counts the write in progressUpdates.
func setStatus(u *unstructured.Unstructured, s api.JobStatus) {
	status, _ := u.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	fresh := plain(s)
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
	status["progressUpdates"] = updates(status["progressUpdates"]) + 1
	u.Object["status"] = status
}

// setState changes nothing of the status but its state.
func setState(u *unstructured.Unstructured, state string) {
	status, _ := u.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	status["state"] = state
	status["progressUpdates"] = updates(status["progressUpdates"]) + 1
	u.Object["status"] = status
}

// setMessage changes nothing of the status but its message.
func setMessage(u *unstructured.Unstructured, text string) {
	if status, ok := u.Object["status"].(map[string]any); ok {
		status["message"] = clip(text, maxMessage)
	}
}

func updates(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// plain turns a status into the form that unstructured objects are made of.
func plain(s api.JobStatus) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if err != nil {
		panic("jobs: internal error: status cannot be encoded: " + err.Error())
	}
	return out
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
