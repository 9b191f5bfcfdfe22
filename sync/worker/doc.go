// Package worker does the work of jobs, one file per action. A worker knows
// Grafana's rules for its action and nothing of claims and leases: it gets a
// task, works until it is done or its context ends, and tells what it did.
package worker
