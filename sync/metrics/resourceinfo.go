package metrics

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/source"
)

// InfoName is the metric of Flux that says of each object what it is and how it is.
const InfoName = "gotk_resource_info"

// Kind is a kind of objects that have a series of gotk_resource_info each. It has the labels that
// kube-state-metrics gives it with the configuration of Flux, whose dashboards read them; 'limpet
// monitoring ksm' prints such a configuration of the same Kinds.
type Kind struct {
	Resource schema.GroupVersionResource
	Kind     string
	Labels   []Label // besides name, exported_namespace and customresource_*
}

// IsSource reports whether the kind is one of Flux's sources.
func (k Kind) IsSource() bool { return k.Resource.Group == api.GitRepositories.Group }

// Label is a label and the value in an object that it has. An object without the value has no such
// label.
type Label struct {
	Name  string
	Path  []string // as kube-state-metrics takes it: "[type=Ready]" is an element of a list
	value func(kube.Object) string
}

var (
	ready = Label{"ready", []string{"status", "conditions", "[type=Ready]", "status"}, func(o kube.Object) string {
		status, _ := readyCondition(o)
		return status
	}}
	suspended = labelAt("suspended", "spec", "suspend")
	revision  = labelAt("revision", "status", "artifact", "revision")
	repoURL   = Label{"url", []string{"spec", "url"}, func(o kube.Object) string { return source.CleanURL(o.Text(pathURL)) }}
)

// Kinds are all Kinds, one a row.
var Kinds = []Kind{
	{api.GitRepositories, "GitRepository", []Label{ready, suspended, revision, repoURL}},
	{api.OCIRepositories, "OCIRepository", []Label{ready, suspended, revision, repoURL}},
	{api.Buckets, "Bucket", []Label{
		ready, suspended, revision, labelAt("endpoint", "spec", "endpoint"), labelAt("bucket_name", "spec", "bucketName"),
	}},
	{api.HelmRepositories, "HelmRepository", []Label{ready, suspended, revision, repoURL, labelAt("type", "spec", "type")}},
	{api.HelmCharts, "HelmChart", []Label{
		ready, suspended, revision, labelAt("chart_name", "spec", "chart"), labelAt("chart_version", "spec", "version"),
	}},
	{api.ExternalArtifacts, "ExternalArtifact", []Label{ready, revision}},
	{api.Repositories, "Repository", []Label{
		ready, labelAt("type", "spec", "type"), labelAt("target", "spec", "sync", "target"),
		labelAt("revision", "status", "sync", "lastRef"), labelAt("state", "status", "sync", "state"),
	}},
	{api.Connections, "Connection", []Label{ready, labelAt("type", "spec", "type")}},
	{api.Jobs, "Job", []Label{
		labelAt("action", "spec", "action"), labelAt("repository", "spec", "repository"), labelAt("state", "status", "state"),
	}},
}

func labelAt(name string, path ...string) Label {
	at := kube.PathTo(path...)
	return Label{name, path, func(o kube.Object) string { return o.Scalar(at) }}
}

var (
	pathURL      = kube.PathTo("spec", "url")
	pathSize     = kube.PathTo("status", "artifact", "size")
	pathArtifact = kube.PathTo("status", "artifact", "lastUpdateTime")
)

// readyCondition returns status and reason of the condition Ready, "" when there is none.
func readyCondition(o kube.Object) (status, reason string) {
	list, _, _ := unstructured.NestedFieldNoCopy(o.Unstructured().Object, "status", "conditions")
	conditions, _ := list.([]any)
	_, condition := api.FindCondition(conditions, "Ready")
	status, _ = condition["status"].(string)
	reason, _ = condition["reason"].(string)
	return status, reason
}

// resources exports the objects of a kind: above maxSeries only those that fail have series, and
// the counts say how many there are.
func (s exporter) resources(kind Kind, all []kube.Object) {
	counts, unlisted := map[string]int{"True": 0, "False": 0}, 0
	has := slices.ContainsFunc(kind.Labels, func(l Label) bool { return l.Name == ready.Name })
	for _, o := range all {
		status, reason := "", ""
		if has {
			status, reason = readyCondition(o)
		}
		counts[status]++
		if len(all) > maxSeries && status != "False" {
			unlisted++
			continue
		}
		s.resource(kind, o, status, reason)
	}
	for status, n := range counts {
		s.gauge("limpet_resources", "Objects by their kind and condition Ready; None is without that condition.", float64(n),
			"customresource_kind", kind.Kind, "ready", cmp.Or(status, "None"))
	}
	s.gauge("limpet_resources_unlisted", "Objects without series of their own: there are too many, and they do not fail.",
		float64(unlisted), "customresource_kind", kind.Kind)
}

func (s exporter) resource(kind Kind, o kube.Object, status, reason string) {
	labels := []string{
		"customresource_group", kind.Resource.Group, "customresource_version", kind.Resource.Version,
		"customresource_kind", kind.Kind, "exported_namespace", o.Namespace(), "name", o.Name(),
	}
	for _, l := range kind.Labels {
		if value := l.value(o); value != "" {
			labels = append(labels, l.Name, value)
		}
	}
	s.gauge(InfoName, "The current state of an object, always 1.", 1, labels...)
	if status != "" {
		s.gauge("limpet_resource_info", "Always 1; why an object is ready or not is in the labels.", 1, "customresource_kind", kind.Kind,
			"exported_namespace", o.Namespace(), "name", o.Name(), "ready", status, "reason", reason)
	}
	if !kind.IsSource() {
		return
	}
	name := []string{"kind", kind.Kind, "namespace", o.Namespace(), "name", o.Name()}
	if size := o.Number(pathSize); size > 0 {
		s.gauge("limpet_source_artifact_bytes", "Size of the artifact of a source.", float64(size), name...)
	}
	// One that finds nothing new changes no status, so it is remembered; a restart forgets it.
	succeeded := s.reconciles.lastSuccess(sourceKey{kind.Kind, o.Namespace(), o.Name()})
	if made := api.TimeOfText(o.Text(pathArtifact)); made.After(succeeded) {
		succeeded = made
	}
	if !succeeded.IsZero() {
		s.gauge("limpet_source_last_success_timestamp_seconds",
			"When a reconcile of a source has succeeded last, as far as this agent knows.", unixSeconds(succeeded), name...)
	}
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
