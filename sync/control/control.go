// Package control lets dashboards and commands use an agent: in its process (Local), or over
// limpet.sock, the socket of the process that holds the state file (Server, Client).
//
// The socket carries HTTP for processes of the same user. Paths below /limpet/v1/ are the calls of
// this package, with JSON in both directions. All other paths are the Kubernetes-style API that the
// agent itself uses, so commands need no credentials of their own while a daemon runs. A request
// has at most maxRequest bytes, and a Log keeps maxLogLines and maxLogBytes.
package control

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/notify"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
	"limpet/sync/worker"
	"limpet/sync/worker/drift"
)

// Protocol is the version of the calls. Since RelayProtocol the socket takes HTTP/2 too.
const (
	Protocol      = 3
	RelayProtocol = 3
)

// Hello is the first answer to each client.
type Hello struct {
	Protocol int       `json:"protocol"`
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	State    string    `json:"state"` // path of the state file
	Server   string    `json:"server"`
}

// History is the part of a Store that reads finished jobs.
type History interface {
	History(ctx context.Context, q state.Query) ([]state.Record, error)
}

// Reader is the part of a Store that a dashboard reads.
type Reader interface {
	History
	Info(ctx context.Context) (state.Info, error)
	// Artifacts returns those of a source that this host has, the newest first; none is no error.
	Artifacts(ctx context.Context, of state.SourceKey) ([]state.Artifact, error)
}

// Store is the state file. The store of this process and the client of a daemon implement it.
type Store interface {
	Reader
	PruneHistory(ctx context.Context, before time.Time) (removed int, err error)
	TrimHistory(ctx context.Context, maxRecords int) (removed int, err error)
	Check(ctx context.Context) (state.CheckReport, error)
	Compact(ctx context.Context) (before, after int64, err error)
	Backup(ctx context.Context, w io.Writer) (int64, error)
}

// Agent is a running agent.
type Agent interface {
	// Next blocks until there is a snapshot newer than seq, or ctx ends.
	Next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error)
	// Cancel stops a job; see jobs.Controller.Cancel.
	Cancel(ctx context.Context, namespace, name string) error
	// Drain stops claiming new jobs; with false it resumes. It returns since when nothing is claimed
	// and how much still has to finish.
	Drain(on bool) (since time.Time, busy int)
	// Hurry retries an unavailable API at once.
	Hurry()
	// Diagnostics describes local storage and connections.
	Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error)
	// Compare returns the changes between two commits.
	Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error)
	// Files lists the files of a repository at the commit that was synced last, or reads one of them.
	Files(ctx context.Context, q snapshot.FileQuery) (snapshot.FileList, error)
	// Client returns the client of the API.
	Client() *kube.Client
	// TestNotify sends an event to the targets of notifications whose names contain only.
	TestNotify(ctx context.Context, only string) ([]notify.Result, error)
	Suspender
	Tester
}

// Tester tests and compares Repositories and Connections from the host of the agent, with its
// credentials.
type Tester interface {
	// Test checks one object, which need not exist on the API, and writes nothing. An error means that
	// the test could not run.
	Test(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error)
	// Preview returns what a pull would do, and writes nothing.
	Preview(ctx context.Context, q worker.PreviewQuery) (*worker.Preview, error)
	// Drift returns what differs between Git and the API, or a directory.
	Drift(ctx context.Context, q worker.DriftQuery) (*drift.Report, error)
}

// Suspender stores which repositories an agent does not reconcile.
type Suspender interface {
	Suspend(ctx context.Context, s repos.Suspension) error
	// Resume reports whether there was a suspension.
	Resume(ctx context.Context, namespace, repository string) (bool, error)
	Suspended(ctx context.Context) ([]repos.Suspension, error)
}

// Drained is the answer to Drain.
type Drained struct {
	Since time.Time `json:"since,omitzero"` // zero = the agent claims
	Busy  int       `json:"busy"`           // running jobs, claims to settle, results to deliver
}

// Service is the Agent of this process: it carries out what people ask for with the parts of the
// agent.
type Service struct {
	diff.Comparer
	*snapshot.Hub
	Jobs   *jobs.Controller
	API    *kube.Client
	Report snapshot.Diagnostics
	Suspensions
	Tests *repos.Tester
	*notify.Outbox
	// Recheck has the health of an object checked that was tested with success, so that a fix takes
	// effect without delay; nil = this agent checks none.
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
