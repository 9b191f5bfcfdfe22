package contract

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// env is where a case runs: a server, and a namespace of its own.
type env struct {
	*testing.T
	target target
	ns     string
}

// Content types of bodies and answers.
const (
	typeJSON      = "application/json"
	typeMerge     = "application/merge-patch+json"
	typeJSONPatch = "application/json-patch+json"
	typeStrategic = "application/strategic-merge-patch+json"
	typeApply     = "application/apply-patch+yaml"
	asTable       = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asPartial     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asPartialList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// option changes a request.
type option func(*http.Request)

// query adds parameters: name, value, name, value.
func query(pairs ...string) option {
	return func(r *http.Request) {
		q := r.URL.Query()
		for i := 0; i < len(pairs); i += 2 {
			q.Add(pairs[i], pairs[i+1])
		}
		r.URL.RawQuery = q.Encode()
	}
}

func header(name, value string) option { return func(r *http.Request) { r.Header.Set(name, value) } }
func accept(value string) option       { return header("Accept", value) }
func content(value string) option      { return header("Content-Type", value) }

// request makes a request. body is nil, a string as it is to be sent, or a value to be sent as
// JSON.
func (e *env) request(method, path string, body any, options ...option) *http.Request {
	e.Helper()
	var data []byte
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	default:
		var err error
		if data, err = json.Marshal(b); err != nil {
			e.Fatal(err)
		}
	}
	u, err := url.Parse(e.target.URL + path)
	if err != nil {
		e.Fatal(err)
	}
	r, err := http.NewRequestWithContext(e.Context(), method, u.String(), bytes.NewReader(data))
	if err != nil {
		e.Fatal(err)
	}
	r.Header.Set("Accept", typeJSON)
	if body != nil {
		r.Header.Set("Content-Type", typeJSON)
	}
	for _, o := range options {
		o(r)
	}
	return r
}

// do sends a request and reads the whole answer.
func (e *env) do(method, path string, body any, options ...option) answer {
	e.Helper()
	r := e.request(method, path, body, options...)
	resp, err := e.target.HTTP.Do(r)
	if err != nil {
		e.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		e.Fatalf("%s %s: read answer: %v", method, path, err)
	}
	a := answer{t: e.T, what: method + " " + r.URL.RequestURI(), code: resp.StatusCode, header: resp.Header, raw: raw}
	if json.Unmarshal(raw, &a.object) != nil {
		a.object = nil
	}
	return a
}

func (e *env) get(path string, o ...option) answer {
	e.Helper()
	return e.do(http.MethodGet, path, nil, o...)
}
func (e *env) post(path string, body any, o ...option) answer {
	e.Helper()
	return e.do(http.MethodPost, path, body, o...)
}
func (e *env) put(path string, body any, o ...option) answer {
	e.Helper()
	return e.do(http.MethodPut, path, body, o...)
}
func (e *env) patch(path, kind string, body any, o ...option) answer {
	e.Helper()
	return e.do(http.MethodPatch, path, body, append([]option{content(kind)}, o...)...)
}
func (e *env) delete(path string, body any, o ...option) answer {
	e.Helper()
	return e.do(http.MethodDelete, path, body, o...)
}

// create stores an object of the case's namespace and returns it as answered.
func (e *env) create(k kind, o object) object {
	e.Helper()
	return e.post(k.in(e.ns), o).is(http.StatusCreated).object
}

// read returns an object as it is now.
func (e *env) read(k kind, name string) object {
	e.Helper()
	return e.get(k.in(e.ns, name)).is(http.StatusOK).object
}

// answer is what came back.
type answer struct {
	t      *testing.T
	what   string
	code   int
	header http.Header
	raw    []byte
	object object // nil unless the body is a JSON object
}

// is demands a status code.
func (a answer) is(code int) answer {
	a.t.Helper()
	if a.code != code {
		a.t.Fatalf("%s answered %d, want %d: %s", a.what, a.code, code, clip(a.raw))
	}
	return a
}

// fails demands an API status with this code and reason.
func (a answer) fails(code int, reason string) answer {
	a.t.Helper()
	a.is(code)
	if a.str("kind") != "Status" || a.str("apiVersion") != "v1" || a.str("status") != "Failure" || a.str("reason") != reason ||
		a.num("code") != int64(code) {
		a.t.Fatalf("%s: want a failure Status with reason %q and code %d: %s", a.what, reason, code, clip(a.raw))
	}
	return a
}

// refused demands a failure, whatever its code: the real machinery answers some
// kinds of invalid requests with 500, which the embedded API need not copy.
func (a answer) refused() answer {
	a.t.Helper()
	if a.code < 400 || a.str("kind") != "Status" || a.str("status") != "Failure" {
		a.t.Fatalf("%s answered %d, want a failure: %s", a.what, a.code, clip(a.raw))
	}
	return a
}

// absent demands that there is no such method: the real machinery looks for
// the name of an object first, or for a page.
func (a answer) absent() answer {
	a.t.Helper()
	if a.code != 400 && a.code != 404 && a.code != 405 {
		a.t.Fatalf("%s answered %d, want no such method: %s", a.what, a.code, clip(a.raw))
	}
	return a
}

// says demands words in the message of a status, or in the body of anything else.
func (a answer) says(words ...string) answer {
	a.t.Helper()
	text := a.str("message")
	if text == "" {
		text = string(a.raw)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			a.t.Errorf("%s: message lacks %q: %s", a.what, w, clip(a.raw))
		}
	}
	return a
}

// blames demands that a 422 names exactly these fields in its causes.
func (a answer) blames(fields ...string) answer {
	a.t.Helper()
	var got []string
	for _, c := range list(a.object, "details", "causes") {
		got = append(got, str(c.(object), "field"))
	}
	slices.Sort(got)
	if !slices.Equal(slices.Compact(got), fields) {
		a.t.Errorf("%s: causes name %q, want %q: %s", a.what, got, fields, clip(a.raw))
	}
	return a
}

func (a answer) str(path ...string) string { return str(a.object, path...) }
func (a answer) num(path ...string) int64  { return num(a.object, path...) }

// items are the objects of a list answer; it must have a list, if an empty one.
func (a answer) items() []object {
	a.t.Helper()
	a.is(http.StatusOK)
	raw, ok := a.object["items"].([]any)
	if !ok {
		a.t.Fatalf("%s: items is not a list: %s", a.what, clip(a.raw))
	}
	out := make([]object, len(raw))
	for i := range raw {
		out[i] = raw[i].(object)
	}
	return out
}

// names are the names of items.
func (a answer) names() []string {
	a.t.Helper()
	out := []string{}
	for _, o := range a.items() {
		out = append(out, name(o))
	}
	return out
}

// has demands the names of a list answer, in this order.
func (a answer) has(names ...string) answer {
	a.t.Helper()
	if got := a.names(); !slices.Equal(got, names) {
		a.t.Errorf("%s lists %q, want %q", a.what, got, names)
	}
	return a
}

func clip(raw []byte) string {
	if len(raw) > 1500 {
		return string(raw[:1500]) + "…"
	}
	return string(raw)
}
