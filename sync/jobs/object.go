package jobs

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"limpet/sync/api"
)

// Reading and changing a Job object. Writers change what they own and leave
// every other member as it is: the API replaces whole objects.

// deathMessage is the text of a job whose last claim has expired. Source:
// Grafana's cleanup.
const deathMessage = "Job failed due to lease expiry - worker may have crashed or lost connection"

func keyOf(u *unstructured.Unstructured) key { return key{u.GetNamespace(), u.GetName()} }

// laneOf goes by the spec, because jobs that were created directly lack the
// repository label.
func laneOf(u *unstructured.Unstructured) lane {
	repository, _, _ := unstructured.NestedString(u.Object, "spec", "repository")
	return lane{u.GetNamespace(), repository}
}

func aboutOf(u *unstructured.Unstructured) about {
	action, _, _ := unstructured.NestedString(u.Object, "spec", "action")
	return about{key: keyOf(u), uid: string(u.GetUID()), repository: laneOf(u).Repository, action: action, attempt: attemptsOf(u) + 1}
}

// claimed says whether somebody has taken the job. One label of the two is enough.
func claimed(u *unstructured.Unstructured) bool {
	l := u.GetLabels()
	return l[api.LabelClaim] != "" || l[api.LabelClaimOwner] != ""
}

// owned says whether u is the very job with that UID under that token.
func owned(u *unstructured.Unstructured, uid, token string) bool {
	return string(u.GetUID()) == uid && token != "" && u.GetLabels()[api.LabelClaimOwner] == token
}

func setClaim(u *unstructured.Unstructured, millis int64, token string) {
	l := u.GetLabels()
	if l == nil {
		l = map[string]string{}
	}
	l[api.LabelClaim], l[api.LabelClaimOwner] = strconv.FormatInt(millis, 10), token
	u.SetLabels(l)
}

func stripClaim(u *unstructured.Unstructured) {
	l := u.GetLabels()
	delete(l, api.LabelClaim)
	delete(l, api.LabelClaimOwner)
	u.SetLabels(l)
}

// attemptsOf is how many claims of the job have ended without a result.
func attemptsOf(u *unstructured.Unstructured) int {
	n, err := strconv.Atoi(u.GetAnnotations()[api.AnnoAttempt])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// notBefore is the server time in milliseconds before which the job rests, or 0.
func notBefore(u *unstructured.Unstructured) int64 {
	n, _ := strconv.ParseInt(u.GetAnnotations()[api.AnnoNotBefore], 10, 64)
	return n
}

// setAnnotation sets or, with an empty value, removes an annotation.
func setAnnotation(u *unstructured.Unstructured, name, value string) {
	a := u.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	if value == "" {
		delete(a, name)
	} else {
		a[name] = value
	}
	if len(a) == 0 {
		a = nil
	}
	u.SetAnnotations(a)
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
	data, err := json.Marshal(s)
	out := map[string]any{}
	if err == nil {
		err = utiljson.Unmarshal(data, &out)
	}
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
