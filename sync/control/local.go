package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/source"
	"limpet/sync/text"
)

// Local is the source of a dashboard in the process of the agent, and answers those of other
// processes.
type Local struct {
	agent Agent // nil = no agent runs
	store Reader
	seq   uint64 // of the last snapshot of Next
}

// NewLocal returns the source for an agent and its state file. Without an agent it has only what
// the state file has.
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
func (l *Local) Artifacts(ctx context.Context, of state.SourceKey) ([]state.Artifact, error) {
	return l.store.Artifacts(ctx, of)
}

// subjectResources are the resources of snapshot.Subject kinds.
var subjectResources = map[string]schema.GroupVersionResource{
	snapshot.SubjectRepository: api.Repositories,
	snapshot.SubjectJob:        api.Jobs,
}

// sourceKind returns the kind of sources of a subject.
func sourceKind(name string) api.Kind {
	k, ok := api.SourceKind(cmp.Or(name, "GitRepository"))
	if !ok { // of a newer dashboard: the API says that it is not served
		k.Kind, k.Plural, k.Versions = name, name, []string{"v1"}
	}
	return k
}

func resourceOf(of snapshot.Subject) schema.GroupVersionResource {
	if of.Kind == snapshot.SubjectSource {
		return sourceKind(of.Source).Resource()
	}
	return subjectResources[of.Kind]
}

// subject returns the object, and ErrReplaced when another one has its name.
func (l *Local) subject(ctx context.Context, of snapshot.Subject) (*unstructured.Unstructured, error) {
	if l.agent == nil {
		return nil, errNoAgent
	}
	u, err := l.agent.Client().Resource(resourceOf(of)).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
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
	return Edit(ctx, l.agent.Client(), resourceOf(e.Subject), e)
}

// Act carries out an action, once: a repetition is refused by the name of the existing job, or is
// harmless.
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
		_, err = source.Reconcile(ctx, client, sourceKind(a.Source), a.Namespace, a.Name, a.UID)
	case snapshot.SuspendSource, snapshot.ResumeSource:
		_, err = source.Suspend(ctx, client, sourceKind(a.Source), a.Namespace, a.Name, a.UID, a.Verb == snapshot.SuspendSource)
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
