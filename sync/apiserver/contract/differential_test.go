package contract

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"limpet/sync/testenv"
)

// steps is how many requests one seed makes.
const steps = 150

// runs keeps two runs of one seed apart: fuzzing repeats them on one server.
var runs atomic.Int64

// FuzzDifferential sends the same random requests to the real machinery and to
// the embedded API, and wants the same answers: code, reason, blamed fields,
// the object but for its identity, and whether there is a new version. At the
// end the watches of both have the same events.
func FuzzDifferential(f *testing.F) {
	for seed := range uint64(6) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		t.Parallel()
		s := testenv.Real(t)
		embedded := embedded(t)
		d := &differential{r: rand.New(rand.NewPCG(seed, 11)), seen: map[string][2][]string{}, last: map[string][2]string{}}
		ns := fmt.Sprintf("diff-%d-%d", seed, runs.Add(1))
		d.side[0] = &env{T: t, target: target{URL: s.URL, HTTP: s.Client(t)}, ns: ns}
		d.side[1] = &env{T: t, target: target{URL: "http://limpet", HTTP: &http.Client{Transport: embedded.Transport()}}, ns: ns}
		d.compare(t, seed)
	})
}

// differential is the state of one run. Index 0 is the real machinery, 1 the embedded API.
type differential struct {
	r    *rand.Rand
	side [2]*env
	seen map[string][2][]string // versions and uids of each object, oldest first, by path
	last map[string][2]string   // the object itself, by path
	log  []string
}

// request is one request, the same for both sides but for versions and uids,
// which are written as $v3 (the third version seen at the path) and $uid.
type request struct {
	method, path, content string
	body                  any
	query                 []string
}

func (q request) String() string {
	data, _ := json.Marshal(q.body)
	return fmt.Sprintf("%s %s %v %s %s", q.method, q.path, q.query, q.content, data)
}

func (d *differential) compare(t *testing.T, seed uint64) {
	from := [2]map[string]string{{}, {}}
	for i, e := range d.side {
		for _, k := range []kind{folders, sources} {
			from[i][k.plural] = e.now(k)
		}
	}
	for n := range steps {
		q := d.request()
		d.log = append(d.log, q.String())
		var got [2]answer
		for i := range d.side {
			got[i] = d.send(i, q)
		}
		want, have := d.digest(0, q, got[0]), d.digest(1, q, got[1])
		if q.content == typeApply && want == `{"code":422,"fields":["status"],"reason":"Invalid"}` {
			return // it made a status of null out of an emptied one, and refuses its own work
		}
		if want != have {
			t.Fatalf("seed=%d step %d: the answers differ\n%s\nreal:     %s\nembedded: %s\nbefore that:\n%s", seed, n, q, want, have,
				strings.Join(d.log[max(0, len(d.log)-12):len(d.log)-1], "\n"))
		}
		d.learn(q, got)
	}
	for _, k := range []kind{folders, sources} {
		want, have := d.history(0, k, from[0][k.plural]), d.history(1, k, from[1][k.plural])
		for i := range max(len(want), len(have)) {
			if i >= len(want) || i >= len(have) || want[i] != have[i] {
				t.Fatalf("seed=%d: event %d of %s differs\nreal:     %v\nembedded: %v", seed, i, k.plural, nth(want, i), nth(have, i))
			}
		}
	}
}

func nth(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return "none"
}

// send makes the request to one side, with its own versions and uids.
func (d *differential) send(i int, q request) answer {
	e := d.side[i]
	var body any
	if q.body != nil {
		data, err := json.Marshal(q.body)
		if err != nil {
			e.Fatal(err)
		}
		text := string(data)
		versions := d.seen[pathOf(q.path)][i]
		for n := len(versions) - 1; n >= 0; n-- {
			text = strings.ReplaceAll(text, fmt.Sprintf("$v%d.", n), strings.SplitN(versions[n], " ", 2)[0])
			text = strings.ReplaceAll(text, fmt.Sprintf("$u%d.", n), strings.SplitN(versions[n], " ", 2)[1])
		}
		body = text
	}
	options := []option{query(q.query...)}
	if q.content != "" {
		options = append(options, content(q.content))
	}
	return e.do(q.method, q.path, body, options...)
}

// pathOf is the path of the object that a path is of.
func pathOf(path string) string { return strings.TrimSuffix(path, "/status") }

// learn remembers the versions that the answers show.
func (d *differential) learn(q request, got [2]answer) {
	if got[0].code >= 300 || slices.Contains(q.query, "All") || got[0].str("kind") == "Status" ||
		strings.HasSuffix(got[0].str("kind"), "List") {
		return
	}
	path := pathOf(q.path)
	if q.method == http.MethodPost {
		path += "/" + name(got[0].object)
	}
	both, last := d.seen[path], d.last[path]
	fresh := false
	for i := range got {
		last[i] = fmt.Sprint(d.plain(i, got[i].object))
		fresh = fresh || len(both[i]) == 0 || both[i][len(both[i])-1] != identity(got[i].object)
	}
	for i := range got {
		if fresh { // on one side at least: the n-th version is the same on both
			both[i] = append(both[i], identity(got[i].object))
		}
	}
	d.seen[path], d.last[path] = both, last
}

// identity is what a later request names of a version of an object.
func identity(o object) string { return version(o) + " " + uid(o) }

// digest is what of an answer must be the same on both sides.
func (d *differential) digest(i int, q request, a answer) string {
	out := object{"code": a.code}
	switch {
	case a.code >= 400:
		out["reason"] = a.str("reason")
		var fields []string
		for _, c := range list(a.object, "details", "causes") {
			fields = append(fields, str(c.(object), "field"))
		}
		slices.Sort(fields)
		out["fields"] = slices.Compact(fields)
	case a.object["items"] != nil:
		var items []any
		for _, o := range a.items() {
			items = append(items, d.plain(i, o))
		}
		out["items"], out["kind"] = items, a.str("kind")
	case a.str("kind") == "Status":
		out["status"], out["name"] = a.str("status"), a.str("details", "name")
	default:
		out["object"] = d.plain(i, a.object)
		path := pathOf(q.path)
		if q.method == http.MethodPost {
			path += "/" + name(a.object)
		}
		// The real machinery now and then makes a version of a write that changes
		// nothing to be seen; that much is left to it.
		changed := d.last[path][i] != fmt.Sprint(d.plain(i, a.object))
		if known := d.seen[path][i]; changed && len(known) > 0 && !slices.Contains(q.query, "All") {
			out["new"] = known[len(known)-1] != identity(a.object)
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// plain is an object without what differs between servers and moments.
func (d *differential) plain(i int, o object) object {
	o = clone(o)
	m := meta(o)
	for _, key := range []string{"uid", "creationTimestamp", "resourceVersion"} {
		delete(m, key)
	}
	if m["deletionTimestamp"] != nil {
		m["deletionTimestamp"] = "set"
	}
	var managers []string
	for _, entry := range list(o, "metadata", "managedFields") {
		entry := entry.(object)
		delete(entry, "time")
		data, _ := json.Marshal(entry)
		managers = append(managers, string(data))
	}
	delete(m, "managedFields")
	slices.Sort(managers)
	m["managers"] = managers
	return o
}

// history is the watch of all changes of a kind, without events that show
// nothing new.
func (d *differential) history(i int, k kind, from string) []string {
	e := d.side[i]
	e.post(k.in(e.ns), k.named("the-end"), query("fieldManager", "end")).is(http.StatusCreated)
	w := e.watch(k.in(e.ns), query("resourceVersion", from))
	defer w.end()
	var out []string
	last := map[string]string{}
	for {
		ev, ok := w.next()
		if !ok {
			e.Fatal("the watch ended early")
		}
		data, _ := json.Marshal(d.plain(i, ev.Object))
		if n, line := name(ev.Object), ev.Type+" "+string(data); last[n] != line {
			out, last[n] = append(out, line), line
		}
		if name(ev.Object) == "the-end" {
			return out
		}
	}
}

func (d *differential) pick(choices ...string) string { return choices[d.r.IntN(len(choices))] }
func (d *differential) chance(percent int) bool       { return d.r.IntN(100) < percent }

// request draws one request.
func (d *differential) request() request {
	k := []kind{folders, sources}[d.r.IntN(2)]
	n := d.pick("a", "b", "c")
	ns := d.side[0].ns
	q := request{path: k.in(ns, n), query: []string{"fieldManager", d.pick("one", "two", "three")}}
	if d.chance(8) {
		q.query = append(q.query, "dryRun", "All")
	}
	switch d.r.IntN(14) {
	case 0, 1, 2:
		q.method, q.path, q.body = http.MethodPost, k.in(ns), d.object(k, n)
	case 3, 4:
		q.method, q.body = http.MethodPut, d.versioned(q.path, d.object(k, n))
	case 5:
		q.method, q.path = http.MethodPut, k.in(ns, n, "status")
		q.body = d.versioned(q.path, d.object(k, n))
	case 6, 7:
		q.method, q.content, q.body = http.MethodPatch, typeMerge, d.merge()
		if d.chance(25) {
			q.path += "/status"
		}
	case 8:
		q.method, q.content, q.body = http.MethodPatch, typeJSONPatch, d.jsonPatch()
		if d.chance(25) {
			q.path += "/status"
		}
	case 9, 10:
		q.method, q.content, q.body = http.MethodPatch, typeApply, d.object(k, n)
		if d.chance(40) {
			q.query = append(q.query, "force", "true")
		}
		if d.chance(15) {
			q.path += "/status"
		}
	case 11:
		q.method, q.query = http.MethodDelete, q.query[2:]
		if d.chance(40) {
			q.body = object{"preconditions": d.precondition(q.path)}
		}
	case 12:
		q.method, q.query = http.MethodGet, nil
		if d.chance(60) {
			q.path, q.query = k.in(ns), []string{"labelSelector", d.pick("", "x=1", "x!=1", "x in (1,2)", "!x", "x", "y>1", "y<2")}
		}
	default:
		q.method, q.content = http.MethodPatch, typeMerge
		q.body = object{"metadata": object{"finalizers": []any{}}}
	}
	return q
}

// object draws an object: valid for every server, but for what the request
// around it makes of it.
func (d *differential) object(k kind, n string) object {
	o := k.named(n)
	if d.chance(50) {
		labeled(o, d.pick("x", "y"), d.pick("1", "2", "3"))
	}
	if d.chance(20) {
		set(o, d.pick("v", "w"), "metadata", "annotations", "note")
	}
	if d.chance(20) {
		finalized(o, d.pick("example.com/one", "example.com/two"))
	}
	set(o, d.value(), "spec", d.pick("title", "extra", "deep"))
	if d.chance(40) {
		set(o, d.value(), "spec", d.pick("extra", "more"))
	}
	if d.chance(40) {
		set(o, d.value(), "status", d.pick("message", "state"))
	}
	if d.chance(5) {
		o["bogus"] = 1
	}
	return o
}

// value draws a value. null is left to merge patches: what becomes of a stored
// one when server-side apply meets it is an accident of the real machinery.
func (d *differential) value() any {
	return []any{"text", "other", 1, 2.5, true, false, []any{"p", "q"}, []any{}, object{"m": 1}, object{"m": object{"n": "x"}},
		object{}}[d.r.IntN(11)]
}

// versioned gives an object the newest version, an old one, or none.
func (d *differential) versioned(path string, o object) object {
	known := len(d.seen[pathOf(path)][0])
	switch {
	case known == 0 || d.chance(5):
	case d.chance(80):
		set(o, fmt.Sprintf("$v%d.", known-1), "metadata", "resourceVersion")
	default:
		set(o, fmt.Sprintf("$v%d.", d.r.IntN(known)), "metadata", "resourceVersion")
	}
	if known > 0 && d.chance(30) {
		set(o, fmt.Sprintf("$u%d.", d.r.IntN(known)), "metadata", "uid")
	}
	return o
}

func (d *differential) precondition(path string) object {
	known := len(d.seen[path][0])
	if known == 0 {
		return object{"resourceVersion": "1"}
	}
	out := object{"uid": fmt.Sprintf("$u%d.", known-1)}
	if d.chance(60) {
		out["resourceVersion"] = fmt.Sprintf("$v%d.", d.r.IntN(known))
	}
	return out
}

func (d *differential) merge() object {
	out := object{"spec": object{d.pick("title", "extra", "deep", "more"): d.value(), d.pick("title", "extra"): nil}}
	if d.chance(30) {
		set(out, []any{"1", "2", nil}[d.r.IntN(3)], "metadata", "labels", d.pick("x", "y"))
	}
	if d.chance(30) {
		set(out, d.value(), "status", "message")
	}
	if d.chance(10) {
		out["spec"] = nil
	}
	return out
}

func (d *differential) jsonPatch() []any {
	var out []any
	for range 1 + d.r.IntN(3) {
		op := object{"op": d.pick("add", "replace", "remove", "test", "copy", "move"),
			"path": d.pick("/spec/title", "/spec/extra", "/spec/deep/m", "/spec/extra/0", "/spec/extra/-", "/metadata/labels/x",
				"/metadata/finalizers", "/status/message")}
		switch op["op"] {
		case "copy", "move":
			op["from"] = d.pick("/spec/title", "/spec/more", "/spec/extra")
		case "remove":
		default:
			op["value"] = d.value()
			if strings.HasPrefix(op["path"].(string), "/metadata/labels") {
				op["value"] = d.pick("1", "2")
			}
			if op["path"] == "/metadata/finalizers" {
				op["value"] = []any{"example.com/one"}
			}
		}
		out = append(out, op)
	}
	return out
}
