package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
)

// subjectResources are where the kinds of a view.Subject are.
var subjectResources = map[string]gvr{snapshot.SubjectRepository: api.Repositories, snapshot.SubjectSource: api.GitRepositories, snapshot.SubjectJob: api.Jobs}

// Test implements tui.Source.
func (s *localSource) Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error) {
	return (&session{Client: s.agent.Client()}).tested(ctx, of, s.agent)
}

// Manifest implements tui.Source.
func (s *localSource) Manifest(ctx context.Context, of snapshot.Subject) (string, error) {
	return (&session{Client: s.agent.Client(), Desk: s.agent.Desk()}).manifest(ctx, of)
}

// Test implements tui.Source.
func (s *remoteSource) Test(ctx context.Context, of snapshot.Subject) (out []snapshot.Finding, err error) {
	err = s.through(ctx, func(w *session) error { out, err = w.tested(ctx, of, s.client); return err })
	return out, err
}

// Manifest implements tui.Source.
func (s *remoteSource) Manifest(ctx context.Context, of snapshot.Subject) (out string, err error) {
	err = s.through(ctx, func(w *session) error { out, err = w.manifest(ctx, of); return err })
	return out, err
}

// through has use work with the API of the daemon.
func (s *remoteSource) through(ctx context.Context, use func(*session) error) error {
	client, err := kube.Connect(ctx, kube.Config{Server: control.BaseURL, Transport: control.Transport(s.client.Path()), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer client.Close()
	return use(&session{Client: client, Desk: s.client})
}

// Test needs an agent, which has the credentials.
func (s *diskSource) Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error) {
	if d := s.daemon.Load(); d != nil {
		return d.Test(ctx, of)
	}
	return nil, errors.New("no agent works on this file: nothing is tested")
}

// Manifest has the record of a job alone: the API is not asked.
func (s *diskSource) Manifest(ctx context.Context, of snapshot.Subject) (out string, err error) {
	if d := s.daemon.Load(); d != nil {
		return d.Manifest(ctx, of)
	}
	err = s.reading(ctx, func(store *state.Store) error { out, err = recordSheet(ctx, store, of); return err })
	return out, err
}

// tested looks an object up and has it tested.
func (s *session) tested(ctx context.Context, of snapshot.Subject, who control.Tester) ([]snapshot.Finding, error) {
	u, err := s.subject(ctx, of)
	if err != nil {
		return nil, err
	}
	results, err := who.Test(ctx, u)
	if err != nil {
		return nil, err
	}
	out := make([]snapshot.Finding, len(results.Steps))
	for i, step := range results.Steps {
		out[i] = snapshot.Finding{Name: step.Name, Result: step.Result, Detail: maskText(step.Detail)}
	}
	return out, nil
}

// errReplaced says that the name of an object is another's now.
var errReplaced = errors.New("it was deleted, and another one has its name now")

// subject reads the object that was meant.
func (s *session) subject(ctx context.Context, of snapshot.Subject) (*unstructured.Unstructured, error) {
	u, err := s.find(ctx, subjectResources[of.Kind], of.Namespace, of.Name)
	if err != nil {
		return nil, err
	}
	if of.UID != "" && string(u.GetUID()) != of.UID {
		return nil, fmt.Errorf("%s %s: %w", of.Kind, of.Name, errReplaced)
	}
	return u, nil
}

// manifest is an object of the API; of a job that is not there any more, its record.
func (s *session) manifest(ctx context.Context, of snapshot.Subject) (string, error) {
	u, err := s.subject(ctx, of)
	if err == nil {
		return sheet(u.Object)
	}
	if of.Kind == snapshot.SubjectJob && s.Desk != nil {
		if text, recordErr := recordSheet(ctx, s.Desk, of); recordErr == nil || apierrors.IsNotFound(err) || errors.Is(err, errReplaced) {
			return text, recordErr
		}
	}
	return "", err
}

// recordSheet is the record of a job that has ended.
func recordSheet(ctx context.Context, desk control.Desk, of snapshot.Subject) (string, error) {
	rec, err := findRecord(ctx, desk, of.Namespace, of.UID)
	if err != nil {
		return "", err
	}
	return sheet(rec)
}

// sheet is YAML for a screen: what is no secret to who may read the API may be one to
// who stands beside the screen.
func sheet(v any) (string, error) {
	var b strings.Builder
	if err := printYAML(&b, v); err != nil {
		return "", err
	}
	return maskText(b.String()), nil
}
