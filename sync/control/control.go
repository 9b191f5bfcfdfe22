// Package control is limpet.sock: what a process that holds the state file
// answers to the commands and dashboards of the same user.
//
// Two things travel over it, both HTTP. Paths below /limpet/v1/ are the desk:
// status, history, care of the file. Everything else is the Kubernetes-style
// API that the agent itself works with, so that a command needs no credentials
// of its own while a daemon runs.
package control

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
)

// Protocol is the version of the desk. A client that knows another one shows
// what both understand.
const Protocol = 1

// Hello is the first answer on every connection of a client.
type Hello struct {
	Protocol int       `json:"protocol"`
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	State    string    `json:"state"` // path of the state file
	Server   string    `json:"server"`
}

// Compaction is the result of Compact in bytes.
type Compaction struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// Store is what the holder of the state file can be asked. The store of this
// process and the client of a daemon's socket both answer it.
type Store interface {
	History(ctx context.Context, q state.Query) ([]state.Record, error)
	PruneHistory(ctx context.Context, before time.Time) (removed int, err error)
	TrimHistory(ctx context.Context, maxRecords int) (removed int, err error)
	Info(ctx context.Context) (state.Info, error)
	Check(ctx context.Context) (state.CheckReport, error)
	Compact(ctx context.Context) (before, after int64, err error)
	Backup(ctx context.Context, w io.Writer) (int64, error)
}

// Agent is what a running agent adds to the desk.
type Agent interface {
	// Next blocks until there is a picture newer than seq, or ctx ends.
	Next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error)
	// Cancel stops a job that this agent runs; see jobs.Controller.Cancel.
	Cancel(ctx context.Context, namespace, name string) error
	// Drain has the agent claim nothing new, or with false claim again. It says
	// since when nothing is claimed, and how much has still to end.
	Drain(on bool) (since time.Time, busy int)
	// Hurry has an API that does not answer asked now and not at the next turn.
	Hurry()
	// Diagnostics returns how the house is kept.
	Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error)
	// Compare says what has changed in Git between two commits.
	Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error)
	Suspender
	Tester
}

// Tester tests what Repositories and Connections name, from the host of the agent
// and with the credentials that it finds.
type Tester interface {
	// Test looks into one object, which need not be on the API, and writes
	// nothing. An error says that nothing can be told.
	Test(ctx context.Context, u *unstructured.Unstructured) (repos.TestResults, error)
}

// Suspender keeps which repositories an agent leaves alone.
type Suspender interface {
	Suspend(ctx context.Context, s repos.Suspension) error
	// Resume reports whether there was a suspension.
	Resume(ctx context.Context, namespace, repository string) (bool, error)
	Suspended(ctx context.Context) ([]repos.Suspension, error)
}

// Drained is the answer to Drain.
type Drained struct {
	Since time.Time `json:"since,omitzero"` // zero = the agent claims
	Busy  int       `json:"busy"`           // jobs, claims and results that have not come to their end
}
