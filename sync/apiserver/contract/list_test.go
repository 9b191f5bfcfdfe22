package contract

import (
	"fmt"
	"strconv"
	"testing"
)

// fill creates folders n0 to n(count-1).
func (e *env) fill(count int) {
	e.Helper()
	for i := range count {
		e.create(folders, labeled(folders.named(fmt.Sprintf("n%d", i)), "parity", strconv.Itoa(i%2)))
	}
}

func number(t *testing.T, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatalf("resourceVersion %q: %v", version, err)
	}
	return n
}

var listCases = []testCase{
	{"is empty, not absent", func(e *env) {
		a := e.get(folders.in(e.ns)).has()
		if a.str("kind") != "FolderList" || a.str("apiVersion") != folders.apiVersion() || a.str("metadata", "resourceVersion") == "" {
			e.Errorf("answered %s", a.raw)
		}
	}},
	{"gives whole objects, sorted", func(e *env) {
		for _, n := range []string{"c", "a", "b.x", "b-x", "b"} {
			e.create(folders, folders.named(n))
		}
		a := e.get(folders.in(e.ns)).has("a", "b", "b-x", "b.x", "c")
		for _, o := range a.items() {
			if !sameBut(o, e.read(folders, name(o))) {
				e.Errorf("%s differs from a read", name(o))
			}
		}
	}},
	{"has the version of the newest write", func(e *env) {
		o := e.create(folders, folders.named("a"))
		if v := e.get(folders.in(e.ns)).str("metadata", "resourceVersion"); number(e.T, v) < number(e.T, version(o)) {
			e.Errorf("list at %s, object at %s", v, version(o))
		}
	}},
	{"covers all namespaces", func(e *env) {
		e.create(folders, labeled(folders.named("a"), "case", e.ns))
		e.post(folders.in(e.ns+"b"), labeled(folders.named("b"), "case", e.ns)).is(201)
		e.get(folders.everywhere(), query("labelSelector", "case="+e.ns)).has("a", "b")
		e.get(folders.in(e.ns)).has("a")
	}},
	{"comes in pages", func(e *env) {
		e.fill(7)
		var got []string
		token, first := "", ""
		for page := range 4 {
			a := e.get(folders.in(e.ns), query("limit", "3", "continue", token))
			got = append(got, a.names()...)
			token = a.str("metadata", "continue")
			if page == 0 {
				first = a.str("metadata", "resourceVersion")
			} else if v := a.str("metadata", "resourceVersion"); v != first {
				e.Errorf("page %d is of version %s, the first of %s", page, v, first)
			}
			if token == "" {
				break
			}
		}
		if fmt.Sprint(got) != "[n0 n1 n2 n3 n4 n5 n6]" {
			e.Errorf("pages hold %v", got)
		}
	}},
	{"ends pages exactly", func(e *env) {
		e.fill(4)
		a := e.get(folders.in(e.ns), query("limit", "2"))
		a = e.get(folders.in(e.ns), query("limit", "2", "continue", a.str("metadata", "continue"))).has("n2", "n3")
		if a.str("metadata", "continue") != "" || has(a.object, "metadata", "remainingItemCount") {
			e.Errorf("metadata = %v", a.object["metadata"])
		}
		a = e.get(folders.in(e.ns), query("limit", "4")).has("n0", "n1", "n2", "n3")
		if a.str("metadata", "continue") != "" {
			e.Errorf("metadata = %v", a.object["metadata"])
		}
	}},
	{"pages through all namespaces", func(e *env) {
		e.create(folders, labeled(folders.named("a"), "case", e.ns))
		e.post(folders.in(e.ns+"b"), labeled(folders.named("a"), "case", e.ns)).is(201)
		a := e.get(folders.everywhere(), query("labelSelector", "case="+e.ns, "limit", "1")).has("a")
		if str(a.items()[0], "metadata", "namespace") != e.ns {
			e.Errorf("first page: %v", a.items()[0]["metadata"])
		}
		a = e.get(folders.everywhere(), query("labelSelector", "case="+e.ns, "limit", "1", "continue", a.str("metadata", "continue"))).has("a")
		if str(a.items()[0], "metadata", "namespace") != e.ns+"b" {
			e.Errorf("second page: %v", a.items()[0]["metadata"])
		}
	}},
	{"pages through a selection", func(e *env) {
		e.fill(7)
		a := e.get(folders.in(e.ns), query("labelSelector", "parity=0", "limit", "3")).has("n0", "n2", "n4")
		if has(a.object, "metadata", "remainingItemCount") {
			e.Error("a selection has a remainingItemCount")
		}
		e.get(folders.in(e.ns), query("labelSelector", "parity=0", "limit", "3", "continue", a.str("metadata", "continue"))).has("n6")
	}},
	{"does not lose what stays, whatever is written between pages", func(e *env) {
		e.fill(6)
		a := e.get(folders.in(e.ns), query("limit", "3")).has("n0", "n1", "n2")
		e.delete(folders.in(e.ns, "n1"), nil).is(200)
		e.delete(folders.in(e.ns, "n5"), nil).is(200)
		e.create(folders, folders.named("n0-later"))
		a = e.get(folders.in(e.ns), query("limit", "3", "continue", a.str("metadata", "continue")))
		got := map[string]bool{}
		for _, n := range a.names() {
			got[n] = true
		}
		if !got["n3"] || !got["n4"] || got["n0-later"] || got["n1"] {
			e.Errorf("second page holds %v", a.names())
		}
	}},
	{"refuses a page of nowhere", func(e *env) {
		e.get(folders.in(e.ns), query("limit", "3", "continue", "nonsense")).fails(400, "BadRequest").says("continue key is not valid")
		e.fill(2)
		token := e.get(folders.in(e.ns), query("limit", "1")).str("metadata", "continue")
		e.get(folders.in(e.ns), query("limit", "1", "continue", token, "resourceVersion", "5")).is(400)
	}},
	{"can be as old as the reader likes", func(e *env) {
		e.fill(2)
		e.get(folders.in(e.ns), query("resourceVersion", "0")).is(200)
		v := e.get(folders.in(e.ns)).str("metadata", "resourceVersion")
		e.get(folders.in(e.ns), query("resourceVersion", v, "resourceVersionMatch", "NotOlderThan")).has("n0", "n1")
		e.get(folders.in(e.ns), query("resourceVersion", v)).has("n0", "n1")
		// Others write meanwhile; without a history of the objects the list of before is gone then.
		if exact := e.get(folders.in(e.ns), query("resourceVersion", v, "resourceVersionMatch", "Exact")); exact.code == 410 {
			exact.fails(410, "Expired")
		} else {
			exact.has("n0", "n1")
		}
	}},
	{"refuses versions that are none", func(e *env) {
		e.get(folders.in(e.ns), query("resourceVersion", "abc")).fails(400, "BadRequest")
		e.get(folders.in(e.ns), query("resourceVersionMatch", "Exact")).fails(422, "Invalid")
		e.get(folders.in(e.ns), query("resourceVersion", "0", "resourceVersionMatch", "Exact")).fails(422, "Invalid")
		e.get(folders.in(e.ns), query("resourceVersion", "5", "resourceVersionMatch", "Maybe")).fails(422, "Invalid")
		e.get(folders.in(e.ns), query("limit", "abc")).fails(400, "BadRequest")
	}},
	{"does not know the future", func(e *env) {
		v := number(e.T, e.get(folders.in(e.ns)).str("metadata", "resourceVersion"))
		later := strconv.FormatUint(v+1_000_000, 10)
		a := e.get(folders.in(e.ns), query("resourceVersion", later, "resourceVersionMatch", "NotOlderThan")).fails(504,
			"Timeout").says("Too large resource version")
		causes := list(a.object, "details", "causes")
		if len(causes) != 1 || str(causes[0].(object), "reason") != "ResourceVersionTooLarge" || a.num("details", "retryAfterSeconds") != 1 {
			e.Errorf("details = %v", a.object["details"])
		}
	}},
	{"gives versions that grow", func(e *env) {
		last := uint64(0)
		for i := range 5 {
			o := e.create(folders, folders.named(fmt.Sprintf("n%d", i)))
			if v := number(e.T, version(o)); v <= last {
				e.Errorf("version %d after %d", v, last)
			} else {
				last = v
			}
		}
	}},
	{"is pretty for people", func(e *env) {
		e.create(folders, folders.named("a"))
		if raw := e.get(folders.in(e.ns, "a"), query("pretty", "true")).is(200).raw; len(raw) < 2 || raw[0] != '{' || raw[1] != '\n' {
			e.Errorf("answered %s", raw)
		}
	}},
	{"refuses answers that it cannot give", func(e *env) {
		e.get(folders.in(e.ns), accept("image/png")).is(406)
		e.get(folders.in(e.ns), accept("application/vnd.kubernetes.protobuf, application/json")).is(200)
		e.get(folders.in(e.ns), accept("*/*")).is(200)
	}},
}
