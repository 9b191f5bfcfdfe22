package controller_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/reconcile"
	"limpet/sync/source"
	"limpet/sync/source/archive"
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
	controller.SetPackTimes(r.control, 2*time.Second, time.Hour)
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
	silent := func(i int, timeout, host string) {
		r.Apply(fmt.Sprintf("silent%d", i), `"timeout":"`+timeout+`","ref":{"branch":"main"},"url":"http://`+host+`/x.git"`)
	}
	var hosts []string
	for i := range 40 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close() // until then nothing reads it
			}
		}()
		hosts = append(hosts, ln.Addr().String())
		silent(i, "4s", hosts[i])
	}
	for i := range 40 { // each was asked once
		r.In(fmt.Sprintf("silent%d", i), source.Failed, "GitOperationFailed")
	}
	for len(r.busy) > 0 {
		<-r.busy
	}
	for i := range 40 { // the next time each keeps its turn for longer than the test waits
		silent(i, "60m", hosts[i])
	}
	waiting := map[reconcile.Key]bool{}
	for len(waiting) < 40-reconcile.Workers/2 {
		waiting[<-r.busy] = true
	}
	r.Apply("good", `"ref":{"branch":"main"}`)
	r.ready("good", "main@sha1:"+one)
}

func TestPieces(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	var large strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&large, "panel %d: sum(rate(requests_total[5m]))\n", i*7919%60_013)
	}
	trees := []map[string]string{{"large": large.String(), "z": "1"}, {"z": "2"}}
	var want, index [2]string
	change := func(i int) string {
		commit := r.origin.Commit("change", trees[i%2])
		r.Apply("site", `"ref":{"branch":"main"}`)
		r.Ask("site")
		return r.ready("site", "main@sha1:"+commit).Artifact.Digest
	}
	for i := range want {
		want[i] = change(i)
		index[i] = filepath.Join(r.Dir, "gitrepository", r.Namespace, "site", strings.TrimPrefix(want[i], "sha256:")+".tar.gz.index")
	}
	good, err := os.ReadFile(index[1])
	var pieces archive.Pieces
	if err != nil || json.Unmarshal(good, &pieces) != nil || len(pieces.List) < 3 {
		t.Fatalf("%v: %d pieces", err, len(pieces.List))
	}
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, damage := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, good[:len(good)/2], 0o600) },
		func(path string) error {
			return os.WriteFile(path, bytes.ReplaceAll(good, []byte(`"size":`), []byte(`"size":-`)), 0o600)
		},
		func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
		func(path string) error { return errors.Join(os.Remove(path), os.Symlink(mine, path)) },
		func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "a"), 0o700))
		},
		func(path string) error { return os.RemoveAll(path) },
	} {
		if err := errors.Join(damage(index[0]), damage(index[1])); err != nil {
			t.Fatal(err)
		}
		if got := change(i); got != want[i%2] {
			t.Errorf("damage %d: %s, want %s", i, got, want[i%2])
		}
	}
	if data, err := os.ReadFile(mine); err != nil || string(data) != "mine" {
		t.Errorf("a file of others has %q: %v", data, err)
	}
	// It does copy: what the file vouches for is taken.
	a, b := &pieces.List[0], &pieces.List[1]
	a.Sum, b.Sum = b.Sum, a.Sum
	if body, err := json.Marshal(pieces); err != nil || os.WriteFile(index[1], body, 0o600) != nil {
		t.Fatal(err)
	}
	if change(0) == want[0] {
		t.Error("no piece was copied")
	}
	if err := r.Client.Resource(api.GitRepositories).Namespace(r.Namespace).Delete(t.Context(), "site", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for u, _ := r.get("site"); u != nil; u, _ = r.get("site") {
		<-r.Changed
	}
	if left := gittest.Glob(t, filepath.Dir(index[0]), "*"); len(left) > 0 {
		t.Errorf("of a deleted source: %q", left)
	}
}
