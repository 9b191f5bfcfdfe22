package contract

import (
	"encoding/json"
	"strings"
)

// object is a decoded JSON object.
type object = map[string]any

// kind is one resource in one version.
type kind struct{ group, version, plural, kind string }

// The kinds that stand for all: with a status subresource and without, and jobs, which are stored
// whole.
var (
	folders      = kind{"folder.grafana.app", "v1", "folders", "Folder"}
	dashboards   = kind{"dashboard.grafana.app", "v1", "dashboards", "Dashboard"}
	repositories = kind{"provisioning.grafana.app", "v0alpha1", "repositories", "Repository"}
	jobs         = kind{"provisioning.grafana.app", "v0alpha1", "jobs", "Job"}
	sources      = kind{"source.toolkit.fluxcd.io", "v1", "gitrepositories", "GitRepository"}
)

func (k kind) root() string       { return "/apis/" + k.group + "/" + k.version }
func (k kind) apiVersion() string { return k.group + "/" + k.version }
func (k kind) everywhere() string { return k.root() + "/" + k.plural }

// in is the path of the collection in a namespace, or of what is below it.
func (k kind) in(namespace string, below ...string) string {
	return strings.Join(append([]string{k.root(), "namespaces", namespace, k.plural}, below...), "/")
}

// at is the kind in another version.
func (k kind) at(version string) kind { k.version = version; return k }

// named makes a valid object of the kind.
func (k kind) named(name string) object {
	o := object{"apiVersion": k.apiVersion(), "kind": k.kind, "metadata": object{"name": name}}
	switch k.plural {
	case "folders", "dashboards":
		o["spec"] = object{"title": "Title of " + name}
	case "repositories":
		o["spec"] = object{"title": "Title of " + name, "type": "git", "workflows": []any{},
			"git":  object{"url": "https://git.example.com/ops/dashboards.git", "branch": "main"},
			"sync": object{"enabled": true, "target": "folder", "intervalSeconds": 60}}
	case "jobs":
		o["spec"] = object{"action": "pull", "repository": "site", "pull": object{"incremental": false}}
	case "gitrepositories":
		o["spec"] = object{"url": "https://git.example.com/ops/site.git", "interval": "1m", "ref": object{"branch": "main"}}
	}
	return o
}

// labeled adds labels: name, value, name, value.
func labeled(o object, pairs ...string) object {
	labels := object{}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	meta(o)["labels"] = labels
	return o
}

// finalized gives an object finalizers.
func finalized(o object, names ...string) object {
	list := []any{}
	for _, n := range names {
		list = append(list, n)
	}
	meta(o)["finalizers"] = list
	return o
}

func meta(o object) object { return o["metadata"].(object) }
func spec(o object) object { return o["spec"].(object) }

// set puts a value at a path, making the objects on the way.
func set(o object, value any, path ...string) object {
	at := o
	for _, p := range path[:len(path)-1] {
		next, ok := at[p].(object)
		if !ok {
			next = object{}
			at[p] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
	return o
}

// at returns the value at a path, or nil.
func at(o object, path ...string) any {
	var v any = o
	for _, p := range path {
		m, ok := v.(object)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func str(o object, path ...string) string { s, _ := at(o, path...).(string); return s }
func num(o object, path ...string) int64  { f, _ := at(o, path...).(float64); return int64(f) }
func list(o object, path ...string) []any { l, _ := at(o, path...).([]any); return l }

func name(o object) string           { return str(o, "metadata", "name") }
func uid(o object) string            { return str(o, "metadata", "uid") }
func version(o object) string        { return str(o, "metadata", "resourceVersion") }
func generation(o object) int64      { return num(o, "metadata", "generation") }
func has(o object, p ...string) bool { return at(o, p...) != nil }

// clone copies an object deeply.
func clone(o object) object {
	data, err := json.Marshal(o)
	if err != nil {
		panic("contract: copy object: " + err.Error())
	}
	var out object
	if err := json.Unmarshal(data, &out); err != nil {
		panic("contract: copy object: " + err.Error())
	}
	return out
}

// sameBut compares two objects without the given top-level or metadata members.
func sameBut(a, b object, without ...string) bool {
	a, b = clone(a), clone(b)
	for _, o := range []object{a, b} {
		for _, w := range without {
			delete(o, w)
			delete(meta(o), w)
		}
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
