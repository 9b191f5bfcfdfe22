// Package testenv gives tests the real counterparts of limpet: the API
// machinery of Kubernetes (testdata/apiserver, built on first use), Git over
// HTTP as hosts serve it (git http-backend), and repositories that look like
// those that people keep their dashboards in. What goes wrong between limpet and
// its server is real too: see Fault and Proxy.
//
// Nothing here stands in for anything. A part that cannot be built or started
// fails the test that asked for it.
package testenv
