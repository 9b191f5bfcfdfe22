// Package control lets dashboards and commands use an agent: in its process (Local), or over limpet.sock, the socket of
// the process that holds the state file (Server, Client).
//
// The socket carries HTTP for processes of the same user. Paths below /limpet/v1/ are the calls of this package, with
// JSON in both directions. All other paths are the Kubernetes-style API that the agent itself uses, so commands need no
// credentials of their own while a daemon runs.
package control

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/kube"
	"limpet/sync/notify"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/worker"
	"limpet/sync/worker/drift"
)

// Protocol is the version of the calls.
const Protocol = 2

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
	// Artifacts returns those of a GitRepository that this host has, the newest first; none is no error.
	Artifacts(ctx context.Context, namespace, name string) ([]state.Artifact, error)
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
	// Drain stops claiming new jobs; with false it resumes. It returns since when nothing is claimed and how much still
	// has to finish.
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

// Tester tests and compares Repositories and Connections from the host of the agent, with its credentials.
type Tester interface {
	// Test checks one object, which need not exist on the API, and writes nothing. An error means that the test could
	// not run.
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
