// limpet is an edge agent for Git sync: it watches a Kubernetes-style API, claims
// jobs under a lease, does their work with Git, keeps its state in one file, and
// shows all of it live.
//
// # Packages, from the bottom to the top
//
// A package imports only packages above its own line; 'make size' checks it.
//
//	state               the one bbolt file: claims, history, objects, secrets
//	state/frame         what stands in it: checksummed frames, buckets, counters
//	state/repair        verifies a file, reads the records of a damaged one
//	                    (state/rebuild.go writes the new one)
//	sync/text           terminal-safe text, sizes, ages, redaction
//	sync/program        runs programs of the host
//	sync/fileid         which file of the disk it is, and when it changed; bounded reads
//	sync/garbage        when garbage is collected
//	sync/netx           guard of addresses, proxies, downloads, errors of calls over HTTP
//	sync/api            wire types, labels, conditions, CRDs; api/admission: rules
//	sync/kube           the door to client-go: tokens, clock, retries, informers
//	sync/signature      signatures of OpenPGP and SSH
//	sync/auth           credentials, signers and signing keys: where, by which policy
//	sync/identity       cloud identities to tokens
//	sync/dependency     which Secrets, Connections and files an object uses
//	sync/forge          the REST of Git hosts: webhooks, tokens, branches
//	sync/notify         notifications: the outbox in the state file, its targets
//	sync/git            mirrors, fetch, trees, diffs: the door to go-git
//	sync/resources      files and resources: parse, plan (pure), apply
//	sync/jobs           the job controller; jobs/queue and jobs/lease are pure
//	sync/worker         the work of jobs, an action a file; worker/checkout: the commit
//	                    of a Repository and who may sign it; worker/commit: what jobs
//	                    write to Git; worker/target: where its files go; worker/status:
//	                    what pulls say of themselves; worker/sink, worker/export,
//	                    worker/pr: comments, worker/load, worker/drift
//	sync/source         sources of Flux as rows; source/archive packs a tree,
//	                    source/artifact stores and serves what was packed,
//	                    source/helm reads indexes and charts of Helm,
//	                    source/upstream serves bundles to other limpets
//	sync/reconcile      what reconcilers share: the loop, steps, slots, patches
//	sync/repos          reconcilers of Repositories and Connections, their Lease
//	sync/source/controller
//	                    the one road of all kinds of sources, a step a file
//	sync/source/kind
//	                    the kinds of sources, a folder each
//	sync/apiserver      the embedded API; its tokens, its manifests from files
//	sync/webhook        the receiver of webhooks
//	sync/metrics        Prometheus
//	sync/snapshot       the read model: what dashboard, status and socket show
//	sync/page           the read model as a page for browsers and as JSON
//	sync/control        the control socket: server and client
//	sync/agent          builds the parts and runs them in one errgroup
//	sync/testenv        real API server, Git servers, forges, faults for tests; its folder
//	                    layout holds the rules about files, folders and imports
//	tui                 the dashboard; tui/screen one file a screen, tui/widget
//	tui/cli             the command tree; a package a noun; tui/cli/e2e: journeys
//
// # How a Job travels
//
//  1. jobs/handlers.go: a watch event or list adds a key.
//  2. jobs/queue: order by priority, age and fairness.
//  3. jobs/driver.go takes a key; jobs/admission.go decides: run or skip.
//  4. jobs/claimer.go: a short delay by rendezvous hash; intent in
//     state/claims.go, PUT of the claim labels, confirmed in state.
//  5. jobs/heldjob.go, jobs/renewal.go, jobs/lease: one goroutine renews; its
//     loss cancels the work.
//  6. jobs/runner.go runs the worker: worker/pull.go.
//  7. git/resolve.go, git/fetch.go: the commit into the mirror, verified by
//     worker/checkout.
//  8. git/diff.go, resources/plan.go, resources/apply.go: the ordered changes.
//  9. jobs/progress.go, jobs/results.go: marks and messages, throttled.
//  10. jobs/finisher.go: record and end of the claim in one transaction
//     (state/history.go), HistoricJob POST (archiver.go), DELETE with preconditions.
//  11. jobs/runner.go puts a job that failed and may be tried again back, with a backoff.
//
// After a crash jobs/recoverer.go re-reads every own claim and resumes or drops it;
// jobs/rescuer.go requeues expired claims of others.
//
// # How a health check travels
//
// repos/controller.go enqueues a key; reconcile/loop.go takes it when it is due;
// repos/reconcile.go runs the steps in order: finalizer.go, suspend.go, observe.go,
// health.go (probe.go asks the Git host), sync.go, webhook.go, token.go, status.go,
// which writes. repos/facts.go counts, repos/lease lets one agent of several do it.
//
// # How a key press travels
//
// tui/tui.go (Bubble Tea) to screen/keys.go (one table for keys, hints, help and
// palette), screen/perform.go (what its commands do), screen/actions.go (requests
// and their questions); the action goes to control/local.go in the
// process of the agent, from a dashboard of another process over the socket
// (control/client.go, control/server.go). Commands call the same functions
// (control/jobs.go).
//
// # How an event travels
//
// jobs/events.go to snapshot/activity.go and metrics; snapshot/hub.go wakes
// snapshot/builder.go, which reads the caches of two watches; control/watch.go sends
// differences (Delta in snapshot/hub.go) to dashboards.
//
// # Laws
//
//   - Intent before act, acts harmless when repeated, confirmation after.
//   - An acknowledged write to the state file has been fsynced; damage is never
//     repaired in place.
//   - Every PUT carries UID and resourceVersion, every DELETE preconditions.
//   - On a lost lease nothing more is written: no status, no history.
//   - Claims use the server's time; own deadlines the monotonic clock.
//   - Nothing that a Git server sends is trusted: sizes are bounded, hashes checked.
//   - No secret reaches the state file unsealed, a log, an error, a URL or a screen.
//   - Each heavy dependency has one door: bbolt in state, client-go in sync/kube,
//     go-git below sync/git, Bubble Tea below tui, kong below tui/cli.
package main

import (
	"os"

	"limpet/state"
	"limpet/sync/garbage"
	"limpet/tui/cli"
	"limpet/tui/cli/command"
)

func main() {
	// A child process verifies the state file after an unclean stop; it is this
	// binary again: damage may crash the reader.
	if state.RunProbe() {
		return
	}
	garbage.Limit()
	os.Exit(cli.Main(os.Args[1:], command.System()))
}
