// Package source reads the sources of Flux: their status, their artifacts, and access to the Git
// hosts of GitRepositories. It requests reconciliations and does none of the work of their controller.
// A row shows at most maxText bytes of a message and maxListed conditions and includes.
package source

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/text"
)

const (
	// AnnoRequested requests a reconciliation: any value other than
	// status.lastHandledReconcileAt. Source: fluxcd/pkg, apis/meta.
	AnnoRequested = "reconcile.fluxcd.io/requestedAt"
	// maxText bounds the shown part of a message, in bytes: messages of Git may be a page long.
	maxText = 2000
	// maxListed bounds the shown conditions and includes of one source.
	maxListed = 32
)

// FromObject returns the row of a source. It ignores fields of an unexpected
// type. URLs have no user and password.
func FromObject(u *unstructured.Unstructured) Source {
	spec, status := object(u.Object, "spec"), object(u.Object, "status")
	s := Source{
		Kind: u.GetKind(), UID: string(u.GetUID()), Namespace: u.GetNamespace(), Name: u.GetName(),
		URL: CleanURL(cmp.Or(member(spec, "url"), member(spec, "chart"))), Ref: refText(u.GetKind(), spec), Provider: member(spec, "provider"),
		Interval: duration(member(spec, "interval")), Suspended: spec["suspend"] == true, Sink: short(api.Annotation(u, api.AnnoSinkDir)),
		Artifact: artifact(object(status, "artifact")), Includes: includes(spec, status), Verified: member(status, "sourceVerificationMode"),
	}
	if bucket := member(spec, "bucketName"); bucket != "" {
		s.URL, s.Ref = CleanURL(member(spec, "endpoint")+"/"+bucket), short(member(spec, "prefix"))
	}
	if from := object(spec, "sourceRef"); from != nil {
		of := short(member(from, "kind") + " " + member(from, "name"))
		s.URL = strings.TrimPrefix(s.URL+" of "+of, " of ")
	}
	if verify := object(spec, "verify"); verify != nil {
		s.Verify = cmp.Or(member(verify, "mode"), member(verify, "provider"), "HEAD")
	}
	if at := u.GetDeletionTimestamp(); at != nil {
		s.Deleting = api.Time(at.Time)
	}
	asked, handled := api.Annotation(u, AnnoRequested), member(status, "lastHandledReconcileAt")
	s.Handled = api.TimeOfText(handled)
	if asked != "" && asked != handled && s.Kind != "ExternalArtifact" { // which has no field for it
		s.Waiting, s.Asked = true, api.TimeOfText(asked)
	}
	setState(&s, u, status)
	return s
}

// setState sets the state of a source, and the fields that explain it.
func setState(s *Source, u *unstructured.Unstructured, status map[string]any) {
	seen, looked := number(status, "observedGeneration"), []time.Time{s.Handled}
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
		s.Conditions = append(s.Conditions, Condition{Type: short(kind), Status: short(member(c, "status")),
			Reason: short(member(c, "reason")), Message: short(member(c, "message"))})
		looked = append(looked, api.TimeOfText(member(c, "lastTransitionTime")))
	}
	if s.Artifact != nil {
		looked = append(looked, s.Artifact.Updated)
	}
	s.Looked = slices.MaxFunc(looked, time.Time.Compare)
	s.Behind = u.GetGeneration() > seen && (seen <= 0 || !s.Suspended && s.Deleting.IsZero()) // else it is not going to be seen
	is := func(kind, value string) bool { return member(all[kind], "status") == value }
	from := "Ready"
	switch {
	case s.Ref == refStatic && len(all) == 0:
		s.State, s.Message, s.Behind, s.Interval = Ready, "it is static: its charts read it", false, 0
		return
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
	c := all[from]
	s.Reason, s.Message, s.Since = short(member(c, "reason")), short(member(c, "message")), api.TimeOfText(member(c, "lastTransitionTime"))
	if s.State == Pending {
		s.Reason, s.Message = "", "its controller has not seen its last change yet"
		if seen <= 0 {
			s.Message = "no controller has reconciled it yet"
		}
		s.Since = api.Time(u.GetCreationTimestamp().Time)
	}
}

// refStatic is the ref of a Helm repository that is not reconciled.
const refStatic = "type oci"

// refText returns the followed ref. Flux takes the first of commit, name, tag,
// semver, branch; a branch beside a commit contains it. Of a registry it is the
// first of digest, semver, tag.
func refText(kind string, spec map[string]any) string {
	ref := object(spec, "ref")
	switch kind {
	case "OCIRepository":
		for _, one := range []string{"digest", "semver", "tag"} {
			if value := member(ref, one); value != "" {
				return short(one + " " + value)
			}
		}
		return "tag latest"
	case "HelmRepository":
		if member(spec, "type") == "oci" {
			return refStatic
		}
		return "index"
	case "ExternalArtifact":
		return "its source"
	case "HelmChart":
		return short("version " + cmp.Or(member(spec, "version"), "*"))
	}
	branch := member(ref, "branch")
	if commit := member(ref, "commit"); commit != "" && branch != "" {
		return short("commit " + commit + " of branch " + branch)
	}
	for _, kind := range []string{"commit", "name", "tag", "semver", "branch"} {
		if value := member(ref, kind); value != "" {
			return short(strings.Replace(kind, "name", "ref", 1) + " " + value)
		}
	}
	return "branch master"
}

func artifact(a map[string]any) *Artifact {
	out := Artifact{Revision: short(member(a, "revision")), Digest: short(member(a, "digest")), URL: CleanURL(member(a, "url")),
		Size: number(a, "size"), Updated: api.TimeOfText(member(a, "lastUpdateTime"))}
	if out.URL == "" && out.Revision == "" && out.Digest == "" {
		return nil
	}
	return &out
}

// includes returns the includes of the spec, with the revisions in the artifact.
func includes(spec, status map[string]any) (out []Include) {
	wanted, _ := spec["include"].([]any)
	got, _ := status["includedArtifacts"].([]any)
	for i, entry := range wanted[:min(len(wanted), maxListed)] {
		one, _ := entry.(map[string]any)
		in := Include{Name: short(member(object(one, "repository"), "name")),
			From: short(member(one, "fromPath")), To: short(member(one, "toPath"))}
		if i < len(got) {
			a, _ := got[i].(map[string]any)
			in.Revision = short(member(a, "revision"))
		}
		out = append(out, in)
	}
	return out
}

// CleanURL returns a URL, or a host with a path, without user, password and tokens. The user name
// of ssh is no secret and stays.
func CleanURL(raw string) string {
	const host = "//"
	at := raw
	if !strings.Contains(raw, "://") {
		at = host + raw
	}
	if u, err := url.Parse(at); err == nil {
		if _, secret := u.User.Password(); secret || u.Scheme != "ssh" {
			u.User = nil
		}
		raw = strings.TrimPrefix(u.String(), host)
	} else if at != raw {
		return strings.TrimPrefix(short("x:"+at), "x:"+host) // as the URL that it would be
	}
	return short(raw)
}

// Redacted returns the object with clean addresses. It may modify u.
func Redacted(u *unstructured.Unstructured) map[string]any {
	spec := object(u.Object, "spec")
	for _, name := range []string{"url", "endpoint"} {
		if raw := member(spec, name); strings.ContainsAny(raw, "@?") {
			spec[name] = CleanURL(raw)
		}
	}
	return u.Object
}

// short returns a text without secrets, cut to maxText.
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

func number(m map[string]any, name string) int64 {
	switch n := m[name].(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// duration parses a time span of Go, 0 when it is invalid.
func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0
	}
	return d
}
