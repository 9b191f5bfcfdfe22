// Package source knows the GitRepositories of Flux: what their controller tells of
// them, how it is asked for something, how their artifacts are had, and how their Git
// hosts are asked. It does none of the controller's work.
package source

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/text"
)

const (
	// annoRequested asks the controller for a look: any value that is not the one of
	// status.lastHandledReconcileAt. Source: fluxcd/pkg, apis/meta.
	annoRequested = "reconcile.fluxcd.io/requestedAt"
	// maxText bounds what is shown of a message, in bytes: those of Git may be a page.
	maxText = 2000
	// maxListed bounds the conditions and includes of one source that are shown.
	maxListed = 32
)

// FromObject is what a GitRepository reports. What has another form than it should is left
// out, whatever it is. URLs are without user and password.
func FromObject(u *unstructured.Unstructured) Source {
	spec, status := object(u.Object, "spec"), object(u.Object, "status")
	s := Source{
		UID: string(u.GetUID()), Namespace: u.GetNamespace(), Name: u.GetName(),
		URL: CleanURL(member(spec, "url")), Ref: refText(object(spec, "ref")), Provider: member(spec, "provider"),
		Interval: duration(member(spec, "interval")), Suspended: flag(spec, "suspend"),
		Artifact: artifact(object(status, "artifact")), Includes: includes(spec, status), Verified: member(status, "sourceVerificationMode"),
	}
	if verify := object(spec, "verify"); verify != nil {
		s.Verify = cmp.Or(member(verify, "mode"), "HEAD")
	}
	if at := u.GetDeletionTimestamp(); at != nil {
		s.Deleting = api.Time(at.Time)
	}
	asked, handled := api.Annotation(u, annoRequested), member(status, "lastHandledReconcileAt")
	s.Handled = api.TimeOfText(handled)
	if asked != "" && asked != handled {
		s.Waiting, s.Asked = true, api.TimeOfText(asked)
	}
	setState(&s, u, status)
	return s
}

// setState returns how a source does: its state, and what shows it.
func setState(s *Source, u *unstructured.Unstructured, status map[string]any) {
	seen := number(status, "observedGeneration")
	all := map[string]map[string]any{}
	list, _ := status["conditions"].([]any)
	for _, entry := range list {
		c, _ := entry.(map[string]any)
		kind := member(c, "type")
		if kind == "" || all[kind] != nil || len(all) == maxListed {
			continue
		}
		all[kind] = c
		seen = max(seen, number(c, "observedGeneration"))
		s.Conditions = append(s.Conditions, Condition{Type: short(kind), Status: short(member(c, "status")), Reason: short(member(c, "reason")), Message: short(member(c, "message"))})
		if at := api.TimeOfText(member(c, "lastTransitionTime")); at.After(s.Looked) {
			s.Looked = at
		}
	}
	if s.Artifact != nil && s.Artifact.Updated.After(s.Looked) {
		s.Looked = s.Artifact.Updated
	}
	if s.Handled.After(s.Looked) {
		s.Looked = s.Handled
	}
	s.Behind = u.GetGeneration() > seen
	is := func(kind, value string) bool { return member(all[kind], "status") == value }
	from := "Ready"
	switch {
	case s.Behind && seen <= 0:
		s.State = Pending
	case is("Stalled", "True"):
		s.State, from = Stalled, "Stalled"
	case is("Ready", "False"):
		s.State = Failed
	case is("Reconciling", "True"):
		s.State, from = Working, "Reconciling"
	case s.Behind:
		s.State = Pending
	case is("Ready", "True"):
		s.State = Ready
	case len(all) == 0:
		s.State = Pending
	default:
		s.State = Unknown
	}
	s.Reason, s.Message, s.Since = short(member(all[from], "reason")), short(member(all[from], "message")), api.TimeOfText(member(all[from], "lastTransitionTime"))
	if s.State == Pending {
		s.Reason, s.Message = "", "its controller has not seen its last change yet"
		if seen <= 0 {
			s.Message = "no controller has looked at it yet; is source-controller at work?"
		}
		s.Since = api.Time(u.GetCreationTimestamp().Time)
	}
}

// refText is what is followed, by the order in which Flux takes what the spec names:
// commit, name, tag, semver, branch. A branch beside a commit says where that is.
func refText(ref map[string]any) string {
	on := ""
	if b := member(ref, "branch"); b != "" {
		on = " of branch " + b
	}
	for _, kind := range []string{"commit", "name", "tag", "semver", "branch"} {
		value := member(ref, kind)
		switch {
		case value == "":
		case kind == "commit":
			return short("commit " + value + on)
		case kind == "name":
			return short("ref " + value)
		default:
			return short(kind + " " + value)
		}
	}
	return "branch master"
}

func artifact(a map[string]any) *Artifact {
	out := Artifact{Revision: short(member(a, "revision")), Digest: short(member(a, "digest")), URL: CleanURL(member(a, "url")), Size: number(a, "size"), Updated: api.TimeOfText(member(a, "lastUpdateTime"))}
	if out.URL == "" && out.Revision == "" && out.Digest == "" {
		return nil
	}
	return &out
}

// includes are those of the spec, with the revisions that are in the artifact.
func includes(spec, status map[string]any) (out []Include) {
	wanted, _ := spec["include"].([]any)
	got, _ := status["includedArtifacts"].([]any)
	for i, entry := range wanted[:min(len(wanted), maxListed)] {
		one, _ := entry.(map[string]any)
		in := Include{Name: short(member(object(one, "repository"), "name")), From: short(member(one, "fromPath")), To: short(member(one, "toPath"))}
		if i < len(got) {
			a, _ := got[i].(map[string]any)
			in.Revision = short(member(a, "revision"))
		}
		out = append(out, in)
	}
	return out
}

// CleanURL is a URL without user, password and tokens. The name of a user of ssh is
// no secret and stays.
func CleanURL(raw string) string {
	if u, err := url.Parse(raw); err == nil {
		if _, secret := u.User.Password(); secret || u.Scheme != "ssh" {
			u.User = nil
		}
		raw = u.String()
	}
	return short(raw)
}

// Redacted is the object with the URL as CleanURL has it. It may be
// changed by that.
func Redacted(u *unstructured.Unstructured) map[string]any {
	spec := object(u.Object, "spec")
	if raw := member(spec, "url"); raw != "" && strings.ContainsAny(raw, "@?") {
		spec["url"] = CleanURL(raw)
	}
	return u.Object
}

// short is a text without secrets, cut to what is shown.
func short(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return text.Redact(s)
}

func object(m map[string]any, name string) map[string]any {
	out, _ := m[name].(map[string]any)
	return out
}

func member(m map[string]any, name string) string {
	out, _ := m[name].(string)
	return out
}

func flag(m map[string]any, name string) bool {
	out, _ := m[name].(bool)
	return out
}

func number(m map[string]any, name string) int64 {
	switch n := m[name].(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// duration is a time span in the form of Go, 0 for what is none.
func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0
	}
	return d
}
