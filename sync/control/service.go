package control

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/notify"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
	"limpet/sync/worker"
	"limpet/sync/worker/drift"
)

// Service is the Agent of this process: it carries out what people ask for with the parts of the agent.
type Service struct {
	diff.Comparer
	*snapshot.Hub
	Jobs   *jobs.Controller
	API    *kube.Client
	Report snapshot.Diagnostics
	Suspensions
	Tests *repos.Tester
	*notify.Outbox
	// Recheck has the health of an object checked that was tested with success, so that a fix takes effect without
	// delay; nil = this agent checks none.
	Recheck func(kind, namespace, name string)
}

var _ Agent = (*Service)(nil)

// Cancel implements Agent.
func (s *Service) Cancel(ctx context.Context, namespace, name string) error {
	return s.Jobs.Cancel(ctx, namespace, name)
}

// Drain implements Agent.
func (s *Service) Drain(on bool) (since time.Time, busy int) {
	s.Jobs.Drain(on)
	s.Hub.Invalidate()
	return s.Draining()
}

// Draining returns since when nothing new is claimed, and how much still has to finish.
func (s *Service) Draining() (since time.Time, busy int) {
	now := s.Jobs.Snapshot()
	return now.DrainingSince, now.Busy
}

// Hurry implements Agent.
func (s *Service) Hurry() {
	s.API.RetryNow()
	s.Hub.Invalidate()
}

// Diagnostics implements Agent.
func (s *Service) Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error) {
	return s.Report.Read(ctx)
}

// Client implements Agent.
func (s *Service) Client() *kube.Client { return s.API }

// Test implements Tester.
func (s *Service) Test(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	got, err := s.Tests.Test(ctx, u)
	if err == nil && got.Success && u.GetUID() != "" && s.Recheck != nil {
		s.Recheck(u.GetKind(), u.GetNamespace(), u.GetName())
	}
	return got, err
}

// Preview implements Tester.
func (s *Service) Preview(ctx context.Context, q worker.PreviewQuery) (*worker.Preview, error) {
	return s.Pull.Preview(ctx, q)
}

// Drift implements Tester.
func (s *Service) Drift(ctx context.Context, q worker.DriftQuery) (*drift.Report, error) {
	return s.Pull.Drift(ctx, q)
}

// Suspensions is the Suspender of an agent.
type Suspensions struct {
	All      *repos.Suspensions
	Role     func() snapshot.Controllers
	Activity *snapshot.Activity
	Changed  func(namespace, repository string) // must not block
}

// Suspend implements Suspender.
func (s Suspensions) Suspend(ctx context.Context, one repos.Suspension) error {
	if role := s.Role(); role.State != snapshot.ControllersActive {
		return fmt.Errorf("this agent suspends nothing, repositories are %s; suspend on the active agent", role.Text())
	}
	if err := s.All.Suspend(ctx, one); err != nil {
		return err
	}
	text := "suspended"
	if !one.Until.IsZero() {
		text += " until " + one.Until.Local().Format(time.DateTime)
	}
	s.changed(one.Namespace, one.Repository, text)
	return nil
}

// Resume implements Suspender.
func (s Suspensions) Resume(ctx context.Context, namespace, repository string) (bool, error) {
	was, err := s.All.Resume(ctx, namespace, repository)
	if was {
		s.changed(namespace, repository, "resumed")
	}
	return was, err
}

func (s Suspensions) changed(namespace, repository, text string) {
	s.Activity.Note(repository, text)
	s.Changed(namespace, repository)
}

// Suspended implements Suspender.
func (s Suspensions) Suspended(ctx context.Context) ([]repos.Suspension, error) {
	return s.All.Suspended(ctx)
}
