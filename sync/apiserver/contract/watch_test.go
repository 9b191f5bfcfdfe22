package contract

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// now is a version from which a watch of the namespace sees all later events.
func (e *env) now(k kind) string {
	e.Helper()
	return e.get(k.in(e.ns)).is(200).str("metadata", "resourceVersion")
}

const endOfInitial = "k8s.io/initial-events-end"

var watchCases = []testCase{
	{"sends the changes after a list", func(e *env) {
		w := e.watch(folders.in(e.ns), query("resourceVersion", e.now(folders)))
		o := e.create(folders, folders.named("a"))
		if got := w.expect("ADDED", "a"); !sameBut(got, o) {
			e.Errorf("ADDED %v, want %v", got, o)
		}
		changed := e.put(folders.in(e.ns, "a"), set(clone(o), "New", "spec", "title")).is(200).object
		if got := w.expect("MODIFIED", "a"); !sameBut(got, changed) {
			e.Errorf("MODIFIED %v, want %v", got, changed)
		}
		e.delete(folders.in(e.ns, "a"), nil).is(200)
		gone := w.expect("DELETED", "a")
		if !sameBut(gone, changed, "resourceVersion") {
			e.Errorf("DELETED %v, want the last state %v", gone, changed)
		}
		if number(e.T, version(gone)) <= number(e.T, version(changed)) {
			e.Errorf("deleted at version %s, after %s", version(gone), version(changed))
		}
	}},
	{"sends the changes after a version", func(e *env) {
		from := e.now(folders)
		o := e.create(folders, folders.named("a"))
		e.put(folders.in(e.ns, "a"), set(clone(o), "New", "spec", "title")).is(200)
		e.delete(folders.in(e.ns, "a"), nil).is(200)
		w := e.watch(folders.in(e.ns), query("resourceVersion", from))
		if first := w.expect("ADDED", "a"); !sameBut(first, o) {
			e.Errorf("ADDED %v, want the state of then", first)
		}
		w.expect("MODIFIED", "a")
		w.expect("DELETED", "a")
	}},
	{"is exclusive of its version", func(e *env) {
		o := e.create(folders, folders.named("a"))
		w := e.watch(folders.in(e.ns), query("resourceVersion", version(o)))
		e.create(folders, folders.named("b"))
		w.expect("ADDED", "b")
	}},
	{"begins with what is there when no version is given", func(e *env) {
		for _, from := range []string{"", "0"} {
			ns := e.ns + "-" + from + "x"
			e.post(folders.in(ns), folders.named("a")).is(201)
			e.post(folders.in(ns), folders.named("b")).is(201)
			w := e.watch(folders.in(ns), query("resourceVersion", from))
			w.expect("ADDED", "a")
			w.expect("ADDED", "b")
			e.post(folders.in(ns), folders.named("c")).is(201)
			w.expect("ADDED", "c")
		}
	}},
	{"covers all namespaces", func(e *env) {
		label := query("labelSelector", "case="+e.ns)
		w := e.watch(folders.everywhere(), label, query("resourceVersion", e.now(folders)))
		e.create(folders, labeled(folders.named("a"), "case", e.ns))
		e.post(folders.in(e.ns+"b"), labeled(folders.named("b"), "case", e.ns)).is(201)
		w.expect("ADDED", "a")
		if o := w.expect("ADDED", "b"); str(o, "metadata", "namespace") != e.ns+"b" {
			e.Errorf("metadata = %v", o["metadata"])
		}
	}},
	{"omits other namespaces and kinds", func(e *env) {
		w := e.watch(folders.in(e.ns), query("resourceVersion", e.now(folders)))
		e.post(folders.in(e.ns+"b"), folders.named("other")).is(201)
		e.create(dashboards, dashboards.named("other"))
		e.create(folders, folders.named("a"))
		w.expect("ADDED", "a")
	}},
	{"adds and deletes what enters and leaves a selection", func(e *env) {
		o := e.create(folders, labeled(folders.named("a"), "x", "1"))
		w := e.watch(folders.in(e.ns), query("labelSelector", "x=2", "resourceVersion", version(o)))
		o = e.put(folders.in(e.ns, "a"), labeled(o, "x", "2")).is(200).object
		w.expect("ADDED", "a")
		inside := e.put(folders.in(e.ns, "a"), set(o, "New", "spec", "title")).is(200).object
		w.expect("MODIFIED", "a")
		outside := e.put(folders.in(e.ns, "a"), labeled(clone(inside), "x", "3")).is(200).object
		left := w.expect("DELETED", "a")
		if str(left, "metadata", "labels", "x") != "2" || version(left) != version(outside) {
			e.Errorf("left as %v, want the labels of before at version %s", left["metadata"], version(outside))
		}
		e.put(folders.in(e.ns, "a"), set(outside, "Unseen", "spec", "title")).is(200)
		e.create(folders, labeled(folders.named("b"), "x", "2"))
		w.expect("ADDED", "b")
	}},
	{"follows one name", func(e *env) {
		w := e.watch(folders.in(e.ns), query("fieldSelector", "metadata.name=b", "resourceVersion", e.now(folders)))
		e.create(folders, folders.named("a"))
		e.create(folders, folders.named("b"))
		w.expect("ADDED", "b")
	}},
	{"sends changes of status and marks for deletion", func(e *env) {
		o := e.create(repositories, finalized(repositories.named("a"), "cleanup"))
		w := e.watch(repositories.in(e.ns), query("resourceVersion", version(o)))
		e.put(repositories.in(e.ns, "a", "status"), set(clone(o), "x", "status", "message")).is(200)
		if got := w.expect("MODIFIED", "a"); str(got, "status", "message") != "x" {
			e.Errorf("status = %v", got["status"])
		}
		e.delete(repositories.in(e.ns, "a"), nil).is(200)
		if got := w.expect("MODIFIED", "a"); !has(got, "metadata", "deletionTimestamp") {
			e.Errorf("metadata = %v", got["metadata"])
		}
		e.patch(repositories.in(e.ns, "a"), typeMerge, object{"metadata": object{"finalizers": nil}}).is(200)
		w.expect("DELETED", "a")
	}},
	{"says nothing when nothing changes", func(e *env) {
		o := e.create(folders, folders.named("a"))
		w := e.watch(folders.in(e.ns), query("resourceVersion", version(o)))
		e.put(folders.in(e.ns, "a"), o).is(200)
		e.post(folders.in(e.ns), folders.named("dry"), query("dryRun", "All")).is(201)
		e.create(folders, folders.named("b"))
		w.expect("ADDED", "b")
	}},
	{"sends changes in order", func(e *env) {
		w := e.watch(folders.in(e.ns), query("resourceVersion", e.now(folders)))
		const n = 40
		for i := range n {
			e.create(folders, folders.named(fmt.Sprintf("n%d", i)))
		}
		last := uint64(0)
		for i := range n {
			v := number(e.T, version(w.expect("ADDED", fmt.Sprintf("n%d", i))))
			if v <= last {
				e.Errorf("version %d after %d", v, last)
			}
			last = v
		}
	}},
	{"ends after its time", func(e *env) {
		began := time.Now()
		w := e.watch(folders.in(e.ns), query("timeoutSeconds", "1", "resourceVersion", e.now(folders)))
		w.over()
		if took := time.Since(began); took < 500*time.Millisecond || took > 10*time.Second {
			e.Errorf("ended after %s", took)
		}
	}},
	{"sends bookmarks", func(e *env) {
		e.create(folders, folders.named("a"))
		from := e.now(folders)
		e.create(dashboards, dashboards.named("elsewhere"))
		w := e.watch(folders.in(e.ns), query("allowWatchBookmarks", "true", "timeoutSeconds", "4", "resourceVersion", from))
		o := w.expect("BOOKMARK", "")
		if o["kind"] != "Folder" || o["apiVersion"] != folders.apiVersion() || number(e.T, version(o)) < number(e.T, from) ||
			has(o, "metadata", "annotations") {
			e.Errorf("bookmark %v after %s", o, from)
		}
	}},
	{"streams lists", func(e *env) {
		e.create(folders, folders.named("a"))
		b := e.create(folders, folders.named("b"))
		w := e.watch(folders.in(e.ns), query("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true"))
		w.expect("ADDED", "a")
		if got := w.expect("ADDED", "b"); !sameBut(got, b) {
			e.Errorf("ADDED %v, want %v", got, b)
		}
		mark := w.expect("BOOKMARK", "")
		if str(mark, "metadata", "annotations", endOfInitial) != "true" || mark["kind"] != "Folder" ||
			number(e.T, version(mark)) < number(e.T, version(b)) {
			e.Errorf("bookmark %v", mark)
		}
		e.create(folders, folders.named("c"))
		w.expect("ADDED", "c")
	}},
	{"streams empty lists", func(e *env) {
		w := e.watch(folders.in(e.ns), query("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true",
			"resourceVersion", "0"))
		if mark := w.expect("BOOKMARK", ""); str(mark, "metadata", "annotations", endOfInitial) != "true" {
			e.Errorf("bookmark %v", mark)
		}
	}},
	{"streams selections", func(e *env) {
		e.create(folders, labeled(folders.named("a"), "x", "1"))
		e.create(folders, folders.named("b"))
		w := e.watch(folders.in(e.ns), query("labelSelector", "x=1", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan",
			"allowWatchBookmarks", "true"))
		w.expect("ADDED", "a")
		w.expect("BOOKMARK", "")
	}},
	{"does not stream lists of what was", func(e *env) {
		o := e.create(folders, folders.named("a"))
		w := e.watch(folders.in(e.ns), query("sendInitialEvents", "false", "resourceVersionMatch", "NotOlderThan", "resourceVersion", version(o)))
		e.create(folders, folders.named("b"))
		w.expect("ADDED", "b")
	}},
	{"refuses streams that make no sense", func(e *env) {
		for _, q := range [][]string{
			{"sendInitialEvents", "true"},
			{"sendInitialEvents", "true", "resourceVersionMatch", "Exact"},
			{"resourceVersionMatch", "NotOlderThan"},
		} {
			e.get(folders.in(e.ns), query("watch", "true"), query(q...)).fails(422, "Invalid")
		}
	}},
	{"refuses versions that are none", func(e *env) {
		e.get(folders.in(e.ns), query("watch", "true", "resourceVersion", "abc")).refused()
	}},
	{"says when a version is too old", func(e *env) {
		e.create(folders, folders.named("a"))
		// A server may answer with the status or send it as the only event.
		a := e.get(folders.in(e.ns), query("watch", "true", "resourceVersion", "1", "timeoutSeconds", "10"))
		status := a.object
		if a.code == http.StatusOK {
			if a.str("type") != "ERROR" {
				e.Fatalf("answered %s", clip(a.raw))
			}
			status = at(a.object, "object").(object)
		} else {
			a.is(http.StatusGone)
		}
		if status["kind"] != "Status" || status["reason"] != "Expired" || num(status, "code") != 410 {
			e.Errorf("status = %v", status)
		}
	}},
	{"shows tables", func(e *env) {
		w := e.watch(folders.in(e.ns), accept(asTable), query("resourceVersion", e.now(folders)))
		e.create(folders, folders.named("a"))
		e.create(folders, folders.named("b"))
		for i, want := range []string{"a", "b"} {
			ev, _ := w.next()
			if ev.Type != "ADDED" || str(ev.Object, "kind") != "Table" {
				e.Fatalf("event %v", ev)
			}
			if i == 0 && len(list(ev.Object, "columnDefinitions")) == 0 {
				e.Error("the first table has no columns")
			}
			if rows := list(ev.Object, "rows"); len(rows) != 1 || list(rows[0].(object), "cells")[0] != want {
				e.Errorf("rows = %v", rows)
			}
		}
	}},
	{"shows metadata alone", func(e *env) {
		w := e.watch(folders.in(e.ns), accept(asPartial), query("resourceVersion", e.now(folders)))
		e.create(folders, folders.named("a"))
		if o := w.expect("ADDED", "a"); o["kind"] != "PartialObjectMetadata" || has(o, "spec") {
			e.Errorf("ADDED %v", o)
		}
	}},
	{"is answered at once", func(e *env) {
		began := time.Now()
		e.watch(folders.in(e.ns), query("resourceVersion", e.now(folders)))
		if took := time.Since(began); took > 20*time.Second {
			e.Errorf("the header came after %s", took)
		}
	}},
	{"can begin at any version of a list page", func(e *env) {
		e.fill(3)
		a := e.get(folders.in(e.ns), query("limit", "1"))
		e.create(folders, folders.named("later"))
		w := e.watch(folders.in(e.ns), query("resourceVersion", a.str("metadata", "resourceVersion")))
		w.expect("ADDED", "later")
	}},
	{"carries other versions", func(e *env) {
		old := folders.at("v1beta1")
		w := e.watch(old.in(e.ns), query("resourceVersion", e.now(old)))
		e.create(folders, folders.named("a"))
		if o := w.expect("ADDED", "a"); o["apiVersion"] != old.apiVersion() {
			e.Errorf("apiVersion = %v", o["apiVersion"])
		}
	}},
	{"survives many watchers", func(e *env) {
		from := e.now(folders)
		const n = 30
		var all []*stream
		for range n {
			all = append(all, e.watch(folders.in(e.ns), query("resourceVersion", from)))
		}
		for i := range 5 {
			e.create(folders, folders.named("n"+strconv.Itoa(i)))
		}
		for _, w := range all {
			for i := range 5 {
				w.expect("ADDED", "n"+strconv.Itoa(i))
			}
		}
	}},
}
