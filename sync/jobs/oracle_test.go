package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// entry is one accepted write.
type entry struct {
	call
	at          time.Time // by the server's clock
	before, now *unstructured.Unstructured
}

// writes counts accepted writes that a condition holds for.
func (m *model) writes(ok func(e entry) bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.audit {
		if ok(e) {
			n++
		}
	}
	return n
}

// onlyAsksToStop says that a write changes nothing but the wish to stop, which
// anybody may utter.
func onlyAsksToStop(e entry) bool {
	if e.now == nil || e.now.GetAnnotations()[api.AnnoCancel] == "" {
		return false
	}
	a, b := e.before.DeepCopy(), e.now.DeepCopy()
	for _, u := range []*unstructured.Unstructured{a, b} {
		api.SetAnnotation(u, api.AnnoCancel, "")
		u.SetResourceVersion("")
	}
	return equal(a, b)
}

// arrived counts requests that a condition holds for, refused ones included.
func (m *model) arrived(ok func(c call) bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.calls {
		if ok(c) {
			n++
		}
	}
	return n
}

// unlawful is the oracle: it returns every accepted write of an agent that the
// rules of the wire forbid.
func (m *model) unlawful(expiry time.Duration) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	holder := map[string]string{} // token -> agent; a1 and a2 are two processes of agent a
	archived := map[string]int{}
	maps.Copy(holder, m.known)
	for _, e := range m.audit {
		if e.Agent == "person" {
			continue
		}
		e.Agent = strings.TrimRight(e.Agent, "0123456789")
		bad := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("%s %s %s %s: ", e.Agent, e.Verb, e.Resource, e.Name)+fmt.Sprintf(format, args...))
		}
		if e.Verb == "delete" && !e.bound {
			bad("unconditional")
		}
		switch e.Resource {
		case "historicjobs":
			if e.Verb == "create" {
				l := e.now.GetLabels()
				archived[l[api.LabelOriginalUID]]++
				if archived[l[api.LabelOriginalUID]] > 1 {
					bad("second HistoricJob of %s", l[api.LabelOriginalUID])
				}
				if _, named := l[api.LabelRepository]; l[api.LabelClaim] != "" || l[api.LabelClaimOwner] != "" || !named {
					bad("labels %v", l)
				}
			}
		case "jobs":
			was := e.before.GetLabels()[api.LabelClaimOwner]
			since, _ := strconv.ParseInt(e.before.GetLabels()[api.LabelClaim], 10, 64)
			expired := (e.at.UnixMilli()-since > expiry.Milliseconds()) || since-e.at.UnixMilli() > expiry.Milliseconds()
			if h := holder[was]; was != "" && h != e.Agent && !expired && !onlyAsksToStop(e) {
				bad("the job is held by %q", h)
			}
			if e.now == nil {
				continue
			}
			if e.body.GetResourceVersion() == "" || e.body.GetUID() == "" {
				bad("unconditional")
			}
			is, at := e.now.GetLabels()[api.LabelClaimOwner], e.now.GetLabels()[api.LabelClaim]
			if (is == "") != (at == "") {
				bad("one claim label without the other")
			}
			if is != "" && is != was {
				holder[is] = e.Agent
			}
			if ms, err := strconv.ParseInt(at, 10, 64); is != "" && at != e.before.GetLabels()[api.LabelClaim] && (err != nil || time.UnixMilli(ms).Sub(e.at).Abs() > expiry/6+10*time.Second) {
				bad("claim time %s is %s off", at, time.UnixMilli(ms).Sub(e.at))
			}
		}
	}
	return slices.Clip(out)
}
