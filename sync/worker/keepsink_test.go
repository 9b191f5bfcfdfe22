package worker

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/worker/target"
)

// TestKeepSink: what a host has lost, or another host has pulled, is written without a job, and a
// pull of the same commit writes it as well.
func TestKeepSink(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir, elsewhere := filepath.Join(prefix, "dashboards"), filepath.Join(prefix, "elsewhere")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir})
	one := map[string]string{"a/cpu.json": board("cpu", "CPU"), "notes.md": "hello\n"}
	first := r.commit("a/cpu.json", one["a/cpu.json"], "notes.md", one["notes.md"])
	r.expect("first", false, "success", "")
	keep := func(what string, want map[string]string, acts bool) {
		t.Helper()
		n, err := NewPull(r.options).KeepSink(t.Context(), r.object(api.Repositories, "repo"))
		if got := files(t, dir); err != nil || acts != (n > 0) || !maps.Equal(got, want) {
			t.Errorf("%s: %d files, %v; directory holds %v, want %v", what, n, err, got, want)
		}
		if _, u := r.sync(); ready(t, u) != "True" {
			t.Errorf("%s: condition %v", what, ready(t, u))
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keep("as it was written", one, false)
	damages := map[string]func() error{
		"directory": func() error { return os.RemoveAll(dir) },
		"file":      func() error { return os.Remove(filepath.Join(dir, "a/cpu.json")) },
		"manifest":  func() error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
		"size":      func() error { return os.WriteFile(filepath.Join(dir, "notes.md"), nil, 0o644) },
		"content":   func() error { return os.WriteFile(filepath.Join(dir, "notes.md"), []byte("HELLO\n"), 0o644) },
	}
	for what, damage := range damages {
		must(damage())
		keep(what, one, true)
		must(damage())
		r.expect("same commit without "+what, true, "success", "")
		if got := files(t, dir); !maps.Equal(got, one) {
			t.Errorf("a pull without %s: %v", what, got)
		}
	}
	must(os.RemoveAll(dir))
	r.git.Reset()
	keep("from the mirror", one, true)
	if c := r.git.Reset(); c.UploadPack != 0 || c.InfoRefs != 0 {
		t.Errorf("git requests %+v", c)
	}
	must(os.Rename(dir, elsewhere)) // that of a host on which no pull runs
	two := map[string]string{"a/cpu.json": board("cpu", "CPU 2")}
	second := r.commit("a/cpu.json", two["a/cpu.json"], "notes.md", "")
	r.expect("second", false, "success", "")
	must(errors.Join(os.RemoveAll(dir), os.Rename(elsewhere, dir)))
	keep("another host has pulled", two, true)

	// Another host has pulled the same commit from another path.
	must(os.Rename(dir, elsewhere))
	r.change(`{"spec":{"git":{"path":"a"}}}`)
	r.expect("path", false, "success", "")
	must(errors.Join(os.RemoveAll(dir), os.Rename(elsewhere, dir)))
	two = map[string]string{"cpu.json": two["a/cpu.json"]}
	keep("another path", two, true)

	// A pull of this host that has written a later commit still runs.
	r.state(fmt.Sprintf(`{"status":{"sync":{"lastRef":%q,"state":"working"}}}`, first))
	keep("a pull runs", two, false)
	r.state(fmt.Sprintf(`{"status":{"sync":{"lastRef":%q,"state":"success"}}}`, second))

	must(errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)))
	if _, err := NewPull(r.options).KeepSink(t.Context(), r.object(api.Repositories, "repo")); err == nil {
		t.Error("a file in the place of the directory is no error")
	}
	if _, u := r.sync(); ready(t, u) != "False" {
		t.Errorf("condition %v", ready(t, u))
	}
	must(os.Remove(dir))
	keep("the file is gone", two, true)
}

// TestKeepSinkAfterItsPull: the first comparison after a pull of the same agent is spared, unless the
// last one is long ago or the commit is another.
func TestKeepSinkAfterItsPull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, l := &target.Directory{}, looks{of: map[string]look{}}
		for i, s := range []struct {
			wrote, commit string
			after         time.Duration
			spared        bool
		}{
			{"one", "one", 0, false}, // at the start
			{"two", "two", 0, true},
			{"", "two", 0, false},
			{"three", "two", 0, false}, // of another host
			{"", "three", 0, false},
			{"four", "four", mostUnseen / 2, true},
			{"five", "five", mostUnseen / 2, false},
		} {
			time.Sleep(s.after)
			if s.wrote != "" {
				l.wrote(d, s.wrote)
			}
			if got := l.spared(d, s.commit); got != s.spared {
				t.Errorf("step %d: spared %v", i, got)
			}
		}
	})
}

// TestKeepSinkExec: what a pull has switched has the program run; a failure is in the condition
// until it has ended well.
func TestKeepSinkExec(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir, file := filepath.Join(prefix, "dashboards"), filepath.Join(t.TempDir(), "script")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir, api.AnnoSinkExec: fmt.Sprintf(`["/bin/sh",%q]`, file)})
	r.commit("a.json", board("a", "A"))
	r.expect("first", false, "success", "")
	keep := func(what, script, reason string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := NewPull(r.options).KeepSink(t.Context(), r.object(api.Repositories, "repo"))
		_, u := r.sync()
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		_, found := api.FindCondition(list, api.ConditionSinkReady)
		if (err == nil) != (reason == "UpToDate") || found["reason"] != reason {
			t.Errorf("%s: %v, condition %v", what, err, found)
		}
	}
	keep("not permitted", "", "SinkExecRefused")
	r.options.SinkPrograms = []string{"/bin/sh"}
	keep("fails", "exit 1", "SinkExecFailed")
	keep("ends well", "test $LIMPET_NAME = repo", "UpToDate")
	keep("once", "exit 1", "UpToDate")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	keep("restored, fails", "exit 1", "SinkExecFailed")
	// What was restored is in the condition while the program runs.
	runs, seen, done := file+".runs", file+".seen", make(chan struct{})
	if err := errors.Join(os.RemoveAll(dir), syscall.Mkfifo(runs, 0o600), syscall.Mkfifo(seen, 0o600)); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		keep("restored, waits", fmt.Sprintf("echo >%s; read x <%s", runs, seen), "UpToDate")
	}()
	_, err := os.ReadFile(runs)
	if _, u := r.sync(); ready(t, u) != "True" || err != nil {
		t.Errorf("condition %v while the program runs, %v", ready(t, u), err)
	}
	if err := os.WriteFile(seen, []byte("x\n"), 0); err != nil {
		t.Error(err)
	}
	<-done
}

func ready(t *testing.T, repo *unstructured.Unstructured) any {
	t.Helper()
	list, _, _ := unstructured.NestedSlice(repo.Object, "status", "conditions")
	_, found := api.FindCondition(list, api.ConditionSinkReady)
	return found["status"]
}

// TestKeepSinkDeletesNoMoreThanAPull: what no pull has deleted stays, whatever else is gone.
func TestKeepSinkDeletesNoMoreThanAPull(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir, elsewhere := filepath.Join(prefix, "dashboards"), filepath.Join(prefix, "elsewhere")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir, api.AnnoSinkStrict: "false"})
	all := []string{"small/a.json", board("a", "A"), "notes.md", "x"}
	for i := range 40 {
		all = append(all, fmt.Sprintf("d%d.json", i), board(fmt.Sprint("d", i), "D"), fmt.Sprintf("n%d.txt", i), "n")
	}
	r.commit(all...)
	r.expect("first", false, "success", "")
	keep := func(what string, want, left int) {
		t.Helper()
		n, err := NewPull(r.options).KeepSink(t.Context(), r.object(api.Repositories, "repo"))
		if got := len(files(t, dir)); n != want || got != left || err != nil {
			t.Errorf("%s: %d files written, %v; directory holds %d, want %d and %d", what, n, err, got, want, left)
		}
	}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	path := func(path string) { r.change(fmt.Sprintf(`{"spec":{"git":{"path":%q}}}`, path)) }
	path("small")
	r.expect("path, refused", false, "error", "would delete 82 of the 82 objects")
	must(os.Remove(filepath.Join(dir, "d7.json")))
	keep("path, refused", 0, 81)
	path("")
	r.annotate(api.AnnoSinkStrict, "true")
	keep("strict, not pulled", 0, 81)
	r.annotate(api.AnnoSinkStrict, "false")
	keep("as it was pulled", 82, 82)

	// Another host pulls, whose directory is new: that deletes nothing there.
	elsewherePulls := func(consent map[string]string) {
		must(os.Rename(dir, elsewhere))
		if record, _ := r.pull(false, consent); record.State != "success" {
			t.Errorf("pull elsewhere: %s %s", record.State, record.Message)
		}
		must(os.RemoveAll(dir), os.Rename(elsewhere, dir))
	}
	path("small")
	r.commit("small/a.json", board("a", "A 2"))
	elsewherePulls(nil)
	_, err := NewPull(r.options).KeepSink(t.Context(), r.object(api.Repositories, "repo"))
	if err == nil || len(files(t, dir)) != 82 {
		t.Errorf("%v, directory holds %d", err, len(files(t, dir)))
	}
	r.state(`{"status":{"sync":{"source":null}}}`)
	keep("pulled by an earlier version", 0, 82)
	elsewherePulls(map[string]string{api.AnnoAllowMassDelete: "true"})
	elsewherePulls(nil) // the consent is for the commit
	must(os.Remove(filepath.Join(dir, "d7.json")))
	keep("elsewhere with consent", 1, 1)
}
