package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"limpet/tui/cli/command"
	"limpet/tui/cli/history"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
)

// subjectResources are the resources of snapshot.Subject kinds.
var subjectResources = map[string]command.Resource{snapshot.SubjectRepository: api.Repositories,
	snapshot.SubjectSource: api.GitRepositories, snapshot.SubjectJob: api.Jobs}

// Test implements screen.Source.
func (s *localSource) Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error) {
	return tested(ctx, (&command.Session{Client: s.agent.Client()}), of, s.agent)
}

// Manifest implements screen.Source.
func (s *localSource) Manifest(ctx context.Context, of snapshot.Subject) (string, error) {
	return manifest(ctx, (&command.Session{Client: s.agent.Client(), Store: s.agent.Store()}), of)
}

// Test implements screen.Source.
func (s *remoteSource) Test(ctx context.Context, of snapshot.Subject) (out []snapshot.Finding, err error) {
	err = s.through(ctx, func(w *command.Session) error { out, err = tested(ctx, w, of, s.client); return err })
	return out, err
}

// Manifest implements screen.Source.
func (s *remoteSource) Manifest(ctx context.Context, of snapshot.Subject) (out string, err error) {
	err = s.through(ctx, func(w *command.Session) error { out, err = manifest(ctx, w, of); return err })
	return out, err
}

// through calls use with a client of the daemon's API.
func (s *remoteSource) through(ctx context.Context, use func(*command.Session) error) error {
	client, err := kube.Connect(ctx, kube.Config{Server: control.BaseURL, Transport: control.Transport(s.client.Path()),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer client.Close()
	return use(&command.Session{Client: client, Store: s.client})
}

// Test needs an agent, which has the credentials.
func (s *diskSource) Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error) {
	if d := s.daemon.Load(); d != nil {
		return d.Test(ctx, of)
	}
	return nil, errors.New("no agent works on this file: nothing is tested")
}

// Manifest has only the record of a job: the API is not called.
func (s *diskSource) Manifest(ctx context.Context, of snapshot.Subject) (out string, err error) {
	if d := s.daemon.Load(); d != nil {
		return d.Manifest(ctx, of)
	}
	err = s.reading(ctx, func(store *state.Store) error { out, err = recordYAML(ctx, store, of); return err })
	return out, err
}

// tested looks an object up and tests it.
func tested(ctx context.Context, s *command.Session, of snapshot.Subject, who control.Tester) ([]snapshot.Finding, error) {
	u, err := subject(ctx, s, of)
	if err != nil {
		return nil, err
	}
	results, err := who.Test(ctx, u)
	if err != nil {
		return nil, err
	}
	out := make([]snapshot.Finding, len(results.Steps))
	for i, step := range results.Steps {
		out[i] = snapshot.Finding{Name: step.Name, Result: step.Result, Detail: command.RedactText(step.Detail)}
	}
	return out, nil
}

// errReplaced reports that another object has the name now.
var errReplaced = errors.New("it was deleted, and another one has its name now")

// subject returns the object, and an error when another one has its name.
func subject(ctx context.Context, s *command.Session, of snapshot.Subject) (*unstructured.Unstructured, error) {
	u, err := s.Find(ctx, subjectResources[of.Kind], of.Namespace, of.Name)
	if err != nil {
		return nil, err
	}
	if of.UID != "" && string(u.GetUID()) != of.UID {
		return nil, fmt.Errorf("%s %s: %w", of.Kind, of.Name, errReplaced)
	}
	return u, nil
}

// manifest returns an object of the API; for a finished job its record.
func manifest(ctx context.Context, s *command.Session, of snapshot.Subject) (string, error) {
	u, err := subject(ctx, s, of)
	if err == nil {
		return yamlText(u.Object)
	}
	if of.Kind == snapshot.SubjectJob && s.Store != nil {
		if text, recordErr := recordYAML(ctx, s.Store, of); recordErr == nil || apierrors.IsNotFound(err) || errors.Is(err, errReplaced) {
			return text, recordErr
		}
	}
	return "", err
}

// recordYAML is the record of a finished job.
func recordYAML(ctx context.Context, desk control.Store, of snapshot.Subject) (string, error) {
	rec, err := history.FindRecord(ctx, desk, of.Namespace, of.UID)
	if err != nil {
		return "", err
	}
	return yamlText(rec)
}

// yamlText is YAML for a screen. Secrets are redacted: others may see the screen.
func yamlText(v any) (string, error) {
	var b strings.Builder
	if err := command.PrintYAML(&b, v); err != nil {
		return "", err
	}
	return command.RedactText(b.String()), nil
}
