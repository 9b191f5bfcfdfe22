// Package resources turns the files of a Git tree into Grafana resources and
// back: path rules, identities, parsing, ownership, the plan of a sync and its
// application.
//
// The plan is pure: it compares a tree with what the server has and says what
// to do in which order. Nothing in it reads a file or calls a server. Apply
// does the work through the small interfaces Server, Reader and Recorder, which
// the caller supplies.
//
// The rules are those of Grafana's own sync, so that an agent and a Grafana
// that take turns on one repository agree on every name, annotation and
// checksum.
package resources
