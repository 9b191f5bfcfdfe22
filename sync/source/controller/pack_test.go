package controller_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/source/controller"
	"limpet/sync/testenv/gittest"
)

// endless makes a branch whose tree takes a minute or more to match with its rules: 300 directories
// of 300 files.
func endless(r *rig, branch string) {
	r.T.Helper()
	tree := func(entries string) string { return gittest.Git(r.T, r.origin.Bare, []byte(entries), "mktree") }
	blob := func(data string) string {
		return gittest.Git(r.T, r.origin.Bare, []byte(data), "hash-object", "-w", "--stdin")
	}
	rules, list := "", ""
	for i := range 9_000 {
		rules += fmt.Sprintf("*%d*x\n", i)
	}
	at := "100644 blob " + blob("y")
	for range 2 {
		list = ""
		for i := range 300 {
			list += fmt.Sprintf("%s\tn%03d\n", at, i)
		}
		at = "040000 tree " + tree(list)
	}
	root := tree(list + "100644 blob " + blob(rules) + "\t.sourceignore\n")
	commit := gittest.Git(r.T, r.origin.Bare, nil, "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", "-m", "many", root)
	gittest.Git(r.T, r.origin.Bare, nil, "update-ref", "refs/heads/"+branch, commit)
}

// TestEndlessPack: trees whose archive takes very long delay no other source, end with their source
// or with the controller at once, and are given up after a time with a condition that says so.
func TestEndlessPack(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	r.halt()
	controller.SetPackTimes(r.control, 200*time.Millisecond, time.Hour)
	r.halt = r.Run(r.control.Run)
	endless(r, "endless")
	for i := range 3 {
		r.Apply(fmt.Sprintf("endless%d", i), `"ref":{"branch":"endless"}`)
	}
	for i := range 2 {
		one := r.origin.Commit("one", map[string]string{"a": fmt.Sprint(i)})
		r.Apply("good", `"ref":{"branch":"main"}`)
		r.Ask("good")
		r.ready("good", "main@sha1:"+one)
	}
	began := time.Now()
	for i := range 3 {
		name := fmt.Sprintf("endless%d", i)
		if err := r.Client.Resource(api.GitRepositories).Namespace(r.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for u, _ := r.get(name); u != nil; u, _ = r.get(name) {
			<-r.Changed
		}
	}
	r.Apply("last", `"interval":"10m","ref":{"branch":"endless"}`)
	r.Until("last", "packing", func(u *unstructured.Unstructured) bool { return len(u.GetFinalizers()) > 0 })
	r.halt()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("to delete and to stop took %s", took)
	}
	controller.SetPackTimes(r.control, 50*time.Millisecond, 100*time.Millisecond)
	r.Run(r.control.Run)
	if s := r.In("last", source.Failed, "ArchiveOperationFailed"); !strings.Contains(s.Message, "100ms") {
		t.Errorf("given up: %q", s.Message)
	}
	var next time.Time
	for until := time.Now().Add(10 * time.Second); next.IsZero() && time.Now().Before(until); {
		next = r.control.Next(r.Namespace, "last")
	}
	if wait := time.Until(next); wait <= 0 || wait > 10*time.Minute {
		t.Errorf("tried again in %s, with an interval of 10m", wait)
	}
}

// TestSilentHosts: sources at many hosts that never answer do not delay one at a host that does.
func TestSilentHosts(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	one := r.origin.Commit("one", map[string]string{"a": "1"})
	for i := range 40 {
		ln, err := net.Listen("tcp", "127.0.0.1:0") // connections are accepted by the kernel, and nothing reads them
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		r.Apply(fmt.Sprintf("silent%d", i), `"timeout":"4s","ref":{"branch":"main"},"url":"http://`+ln.Addr().String()+`/x.git"`)
	}
	for i := range 40 { // each was asked once
		r.In(fmt.Sprintf("silent%d", i), source.Failed, "GitOperationFailed")
	}
	began := time.Now()
	r.Apply("good", `"ref":{"branch":"main"}`)
	r.ready("good", "main@sha1:"+one)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the good source was ready after %s", took)
	}
}
