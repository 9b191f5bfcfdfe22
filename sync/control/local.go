package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
	"limpet/sync/source"
	"limpet/sync/text"
)

// Local is the source of a dashboard in the process of the agent, and answers those of other processes.
type Local struct {
	agent Agent // nil = no agent runs
	store Reader
	seq   uint64 // of the last snapshot of Next
}

// NewLocal returns the source for an agent and its state file. Without an agent it has only what the state file has.
func NewLocal(agent Agent, store Reader) *Local { return &Local{agent: agent, store: store} }

var (
	errNoAgent = errors.New("no agent works on this file")
	// ErrReplaced reports that another object has the name now.
	ErrReplaced = errors.New("it was deleted, and another one has its name now")
)

// Next blocks until there is a snapshot that it has not returned before, or ctx ends.
func (l *Local) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	snap, err := l.agent.Next(ctx, l.seq)
	if err == nil {
		l.seq = snap.Seq
	}
	return snap, err
}

// Diagnostics returns the diagnostics of the agent, else of the state file.
func (l *Local) Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error) {
	if l.agent == nil {
		return snapshot.StoreDiagnostics(ctx, l.store)
	}
	return l.agent.Diagnostics(ctx)
}

// Compare returns the changes in Git between two commits.
func (l *Local) Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	if l.agent == nil {
		return snapshot.Comparison{}, errNoAgent
	}
	return l.agent.Compare(ctx, q)
}

// Files lists the files of a repository at the commit that was synced last, or reads one of them.
func (l *Local) Files(ctx context.Context, q snapshot.FileQuery) (snapshot.FileList, error) {
	if l.agent == nil {
		return snapshot.FileList{}, errNoAgent
	}
	return l.agent.Files(ctx, q)
}

// Artifacts returns the artifacts of a source that this host has, the newest first.
func (l *Local) Artifacts(ctx context.Context, namespace, name string) ([]state.Artifact, error) {
	return l.store.Artifacts(ctx, namespace, name)
}

// subjectResources are the resources of snapshot.Subject kinds.
var subjectResources = map[string]schema.GroupVersionResource{
	snapshot.SubjectRepository: api.Repositories,
	snapshot.SubjectSource:     api.GitRepositories,
	snapshot.SubjectJob:        api.Jobs,
}

// subject returns the object, and ErrReplaced when another one has its name.
func (l *Local) subject(ctx context.Context, of snapshot.Subject) (*unstructured.Unstructured, error) {
	if l.agent == nil {
		return nil, errNoAgent
	}
	u, err := l.agent.Client().Resource(subjectResources[of.Kind]).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, err
	case of.UID != "" && string(u.GetUID()) != of.UID:
		return nil, fmt.Errorf("%s %s: %w", of.Kind, of.Name, ErrReplaced)
	}
	u.SetManagedFields(nil)
	return u, nil
}

// Test tests a Repository or a source with the credentials of the agent.
func (l *Local) Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error) {
	u, err := l.subject(ctx, of)
	if err != nil {
		return nil, err
	}
	results, err := l.agent.Test(ctx, u)
	if err != nil {
		return nil, err
	}
	out := make([]snapshot.Finding, len(results.Steps))
	for i, step := range results.Steps {
		out[i] = snapshot.Finding{Name: step.Name, Result: step.Result, Detail: text.Redact(step.Detail)}
	}
	return out, nil
}

// Manifest returns an object as YAML without secrets; of a finished job it returns the record.
func (l *Local) Manifest(ctx context.Context, of snapshot.Subject) (string, error) {
	var out any
	u, err := l.subject(ctx, of)
	if err == nil {
		out = u.Object
	} else if of.Kind == snapshot.SubjectJob {
		rec, recordErr := FindRecord(ctx, l.store, of.Namespace, of.UID)
		if recordErr != nil && !apierrors.IsNotFound(err) && !errors.Is(err, ErrReplaced) && !errors.Is(err, errNoAgent) {
			return "", err
		}
		out, err = rec, recordErr
	}
	if err != nil {
		return "", err
	}
	data, err := yaml.Marshal(out)
	return text.Redact(string(data)), err
}

// Edit carries out a step of an edit of an object.
func (l *Local) Edit(ctx context.Context, e snapshot.Edit) (snapshot.Edited, error) {
	if l.agent == nil {
		return snapshot.Edited{}, errNoAgent
	}
	return Edit(ctx, l.agent.Client(), subjectResources[e.Kind], e)
}

// Act carries out an action, once: a repetition is refused by the name of the existing job, or is harmless.
func (l *Local) Act(ctx context.Context, a snapshot.Action) (err error) {
	if l.agent == nil {
		return errNoAgent
	}
	client := l.agent.Client()
	switch a.Verb {
	case snapshot.Hurry:
		l.agent.Hurry()
	case snapshot.Drain, snapshot.Undrain:
		l.agent.Drain(a.Verb == snapshot.Drain)
	case snapshot.Suspend:
		now := time.Now().Round(0)
		return l.agent.Suspend(ctx, repos.Suspension{
			Namespace:  a.Namespace,
			Repository: a.Name,
			UID:        a.UID,
			Since:      now,
			Until:      now.Add(snapshot.SuspendFor),
		})
	case snapshot.Resume:
		_, err = l.agent.Resume(ctx, a.Namespace, a.Name)
	case snapshot.Pull, snapshot.PullFull:
		spec := map[string]any{"action": "pull", "pull": map[string]any{"incremental": a.Verb == snapshot.Pull}}
		_, err = client.Submit(ctx, a.Namespace, a.Name, spec, nil)
	case snapshot.CreateJob:
		var spec map[string]any
		if err := json.Unmarshal([]byte(a.Spec), &spec); err != nil {
			return fmt.Errorf("read spec of a job: %w", err)
		}
		_, err = client.Submit(ctx, a.Namespace, a.Name, spec, nil)
	case snapshot.Reconcile:
		_, err = source.Reconcile(ctx, client, a.Namespace, a.Name, a.UID)
	case snapshot.SuspendSource, snapshot.ResumeSource:
		_, err = source.Suspend(ctx, client, a.Namespace, a.Name, a.UID, a.Verb == snapshot.SuspendSource)
	case snapshot.Cancel, snapshot.Retry:
		return l.actOnJob(ctx, a)
	default:
		return fmt.Errorf("unknown action %q", a.Verb)
	}
	return err
}

// actOnJob cancels or retries the job of a UID.
func (l *Local) actOnJob(ctx context.Context, a snapshot.Action) error {
	client := l.agent.Client()
	u, err := client.Resource(api.Jobs).Namespace(a.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	live := err == nil && string(u.GetUID()) == a.UID
	switch {
	case a.Verb == snapshot.Retry && live:
		_, err = EndBackoff(ctx, client, u)
	case a.Verb == snapshot.Retry:
		var rec state.Record
		if rec, err = FindFinished(ctx, l.store, client, a.Namespace, a.UID); err == nil {
			_, err = RunAgain(ctx, client, rec)
		}
	case !live:
		return fmt.Errorf("job %s has just ended", a.Name)
	case u.GetLabels()[api.LabelClaim] != "":
		return l.agent.Cancel(ctx, a.Namespace, a.Name)
	default:
		_, err = Cancel(ctx, client, u, true)
	}
	return err
}

// ErrEdited reports that an object has changed since its text was read for an edit.
var ErrEdited = errors.New("conflict: it was changed meanwhile, and nothing was written; edit it again")

const editHead = "# Save and close: the difference is shown, and applied after a yes. [redacted] stays as it is on the server.\n"

// Edit reads the text of an object, checks a changed one by a dry run of the API, or applies it. Only the difference is
// written, with the resourceVersion: what is redacted in the text stays, and a change by others is a conflict. The status
// is no part of it, so that its writers are none.
func Edit(ctx context.Context, client *kube.Client, res schema.GroupVersionResource, e snapshot.Edit) (out snapshot.Edited, err error) {
	for try := 1; ; try++ {
		u, err := client.Resource(res).Namespace(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{})
		if err == nil {
			u, res, err = client.Stored(ctx, res, u)
		}
		if err == nil && e.UID != "" && string(u.GetUID()) != e.UID {
			err = fmt.Errorf("%s %s: %w", e.Kind, e.Name, ErrReplaced)
		}
		if err != nil {
			return out, err
		}
		if out.Text, err = Editable(u); err != nil || e.Before == "" {
			return out, err
		}
		if out.Text != e.Before {
			return out, ErrEdited
		}
		patch, err := editPatch(e, u)
		if err != nil || patch == nil {
			return out, err
		}
		opts := metav1.PatchOptions{FieldManager: "limpet", FieldValidation: metav1.FieldValidationStrict}
		if !e.Apply {
			opts.DryRun = []string{metav1.DryRunAll}
		}
		_, err = client.Resource(res).Namespace(e.Namespace).Patch(ctx, e.Name, types.MergePatchType, patch, opts)
		if apierrors.IsConflict(err) && try < cancelTries { // its status was written meanwhile
			continue
		}
		out.Diff = diff.Texts([]byte(e.Before), []byte(e.After))
		return out, err
	}
}

// Editable returns what may be edited of an object, as YAML, without secrets.
func Editable(u *unstructured.Unstructured) (string, error) {
	data, err := yaml.Marshal(Sealed(Written(u)))
	return editHead + string(data), err
}

// Sealed replaces the secrets in an object. An API of plain CRDs returns secure values as they were given.
func Sealed(object map[string]any) any {
	values, _ := object["secure"].(map[string]any)
	for _, value := range values {
		if value, ok := value.(map[string]any); ok && value["create"] != nil {
			value["create"] = text.Redacted
		}
	}
	return redacted("", object)
}

// Written returns a copy of an object without what the server writes.
func Written(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	delete(u.Object, "status")
	for _, member := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(u.Object, "metadata", member)
	}
	return u.Object
}

// redacted redacts the texts of a value, each beside the key of its member: of the YAML it could take indents and quotes.
func redacted(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, one := range v {
			v[name] = redacted(name+": ", one)
		}
	case []any:
		for i, one := range v {
			v[i] = redacted(key, one)
		}
	case string:
		if clean, ok := strings.CutPrefix(text.Redact(key+v), key); ok {
			return clean
		}
		return text.Redacted
	}
	return value
}

// editPatch returns the merge patch from the text before to the one after; nil when they mean the same.
func editPatch(e snapshot.Edit, u *unstructured.Unstructured) ([]byte, error) {
	before, err := api.DocumentJSON([]byte(e.Before))
	if err != nil {
		return nil, err
	}
	after, err := api.DocumentJSON([]byte(e.After))
	if err != nil {
		return nil, fmt.Errorf("invalid YAML: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("invalid object: %w", err)
	}
	if bytes.Contains(patch, []byte(text.Redacted)) {
		return nil, fmt.Errorf("the changed part holds %s, which is no value: leave it as it is, or write the value", text.Redacted)
	}
	var change map[string]any
	if err := json.Unmarshal(patch, &change); err != nil || len(change) == 0 {
		return nil, err
	}
	meta, _ := change["metadata"].(map[string]any)
	for _, fixed := range []string{"name", "namespace"} {
		if _, ok := meta[fixed]; ok {
			return nil, fmt.Errorf("metadata.%s cannot be changed", fixed)
		}
	}
	for _, fixed := range []string{"apiVersion", "kind", "status"} {
		if _, ok := change[fixed]; ok {
			return nil, fmt.Errorf("%s cannot be changed", fixed)
		}
	}
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"], meta["resourceVersion"] = u.GetUID(), u.GetResourceVersion()
	change["metadata"] = meta
	return json.Marshal(change)
}
