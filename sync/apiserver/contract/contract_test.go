// Package contract says what limpet expects of an API server, as tests that run unchanged against
// real API machinery and against the embedded API. Where the two differ, the real one is right, and
// the expectation here is what the real one does.
//
// Cases speak HTTP, so that status codes, reasons and bodies are seen as they
// are on the wire; only those of client.go go through limpet's own client.
package contract

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"limpet/sync/kube"
)

// target is one server under contract.
type target struct {
	URL    string       // without a slash at the end
	HTTP   *http.Client // lets every request in
	Client *kube.Client // the same server through limpet's own client
}

// testCase is one promise. It has a namespace of its own.
type testCase struct {
	name string
	run  func(e *env)
}

// run holds the server that connect returns against the whole contract. connect is called once;
// what it opens it closes by t.Cleanup. run returns before the cases have run; t ends after them.
func run(t *testing.T, connect func(t *testing.T) target) {
	target := connect(t)
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"create", createCases}, {"update", updateCases}, {"status", statusCases}, {"patch", patchCases},
		{"apply", applyCases}, {"delete", deleteCases}, {"list", listCases}, {"select", selectCases},
		{"show", showCases}, {"discovery", discoveryCases}, {"schema", schemaCases}, {"watch", watchCases}, {"client", clientCases},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for i, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(&env{T: t, target: target, ns: namespace(group.name, i)})
				})
			}
		})
	}
}

// namespace names the n-th case of a group. Names of cases are prose, and namespaces are not.
func namespace(group string, n int) string { return strings.ToLower(fmt.Sprintf("%s-%d", group, n)) }
