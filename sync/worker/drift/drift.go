// Package drift compares what Git says of an object with what a server has of it. It is pure.
package drift

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"limpet/sync/api"
	"limpet/sync/text"
)

// States of an Item.
const (
	Missing  = "missing"  // in Git alone
	Extra    = "extra"    // on the server alone, although the repository manages it
	Modified = "modified" // on both, and not the same
)

// Mode is the pointer of a file in a directory that has another type or executable bit, with the
// content of Git.
const Mode = "mode"

// Item is one object that differs.
type Item struct {
	State    string          `json:"state"`
	Group    string          `json:"group,omitempty"`
	Kind     string          `json:"kind"`
	Name     string          `json:"name"`
	Path     string          `json:"path,omitempty"`
	Pointers []string        `json:"pointers,omitempty"` // RFC 6901, into the object
	Git      json.RawMessage `json:"git,omitempty"`      // what is compared; only of items that were asked for
	Live     json.RawMessage `json:"live,omitempty"`
	Version  string          `json:"-"` // resourceVersion of the object, "" = there is none
}

// Report is what differs between the commit that was synced last and the server now.
type Report struct {
	Namespace   string    `json:"namespace"`
	Repository  string    `json:"repository"`
	Commit      string    `json:"commit"`
	Checked     time.Time `json:"checked"`
	Compared    int       `json:"compared"`              // objects that were compared member by member
	NotCompared int       `json:"notCompared,omitempty"` // objects that could not be, or are left to the next check
	Items       []Item    `json:"items"`                 // by path
	Omitted     int       `json:"omitted,omitempty"`     // items whose requested content is left out
}

// firstNames is how many items a Message names.
const firstNames = 3

// Message describes the report for people, in one line.
func (r *Report) Message() string {
	left := map[bool]string{true: fmt.Sprintf("; %d not compared", r.NotCompared)}[r.NotCompared > 0]
	if len(r.Items) == 0 {
		return "nothing differs from commit " + short(r.Commit) + left
	}
	var names []string
	for _, item := range r.Items[:min(len(r.Items), firstNames)] {
		names = append(names, fmt.Sprintf("%s %s (%s)", item.Kind, item.Name, item.State))
	}
	if more := len(r.Items) - firstNames; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	differ := text.Plural(len(r.Items), "object") + map[bool]string{true: " differs", false: " differ"}[len(r.Items) == 1]
	return fmt.Sprintf("%s from commit %s: %s", differ, short(r.Commit), strings.Join(names, ", ")) + left
}

func short(hash string) string { return hash[:min(len(hash), 7)] }

// defaults are what Grafana itself writes into a spec. It also writes most of the metadata, of
// which little is compared.
var defaults = [][]string{{"spec", "id"}, {"spec", "uid"}, {"spec", "version"}, {"spec", "iteration"}}

// maxPointers bounds Item.Pointers.
const maxPointers = 20

// Compare returns where two objects differ, at most maxPointers pointers, and what of them was
// compared. git is the object as a pull writes it; nil on one side is an object that is not there.
// Of the metadata the name, the folder and the labels of git are compared, and the version where
// the server could not convert the object. ignore has pointers of api.ParsePointers. A member that
// is null counts as absent.
func Compare(git, live []byte, ignore [][]string) (pointers []string, was, is json.RawMessage, err error) {
	a, err := decode(cmp.Or(string(git), string(live)))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the object of the file: %w", err)
	}
	b, err := decode(cmp.Or(string(live), string(git)))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the object of the server: %w", err)
	}
	ignore = slices.Concat(defaults, ignore)
	file, server := compared(a, a), compared(b, a)
	if conversion := member(member(b, "status"), "conversion"); conversion["failed"] == true {
		group, _, _ := strings.Cut(fmt.Sprint(b["apiVersion"]), "/")
		file["apiVersion"], server["apiVersion"] = a["apiVersion"], fmt.Sprintf("%s/%v", group, conversion["storedVersion"])
	}
	x, y := prune(file, nil, ignore), prune(server, nil, ignore)
	switch differ(x, y, "", &pointers); {
	case git == nil:
		return nil, nil, encode(y), nil
	case live == nil:
		return nil, encode(x), nil, nil
	}
	return pointers, encode(x), encode(y), nil
}

// Files returns where two documents of JSON differ; nil when one of them is none.
func Files(git, live []byte) (pointers []string) {
	a, err := decode(string(git))
	b, failed := decode(string(live))
	if err == nil && failed == nil {
		differ(a, b, "", &pointers)
	}
	return pointers
}

// compared returns the part of an object that is compared. file is the object that Git has.
func compared(o, file map[string]any) map[string]any {
	out := map[string]any{"spec": o["spec"]}
	for name := range file {
		if name != "apiVersion" && name != "metadata" && name != "status" {
			out[name] = o[name]
		}
	}
	meta, labels := member(o, "metadata"), map[string]any{}
	for name := range member(member(file, "metadata"), "labels") {
		labels[name] = member(meta, "labels")[name]
	}
	folder := member(meta, "annotations")[api.AnnoFolder]
	if folder == "" || folder == "general" {
		folder = nil
	}
	out["metadata"] = map[string]any{"name": meta["name"], "labels": labels, "annotations": map[string]any{api.AnnoFolder: folder}}
	return out
}

func member(o map[string]any, name string) map[string]any {
	m, _ := o[name].(map[string]any)
	return m
}

// prune returns a value without the ignored members and those that are null.
func prune(v any, at []string, ignore [][]string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			if at := append(slices.Clip(at), name); value != nil && !ignored(at, ignore) {
				out[name] = prune(value, at, ignore)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			if at := append(slices.Clip(at), strconv.Itoa(i)); !ignored(at, ignore) {
				out[i] = prune(value, at, ignore)
			}
		}
		return out
	}
	return v
}

func ignored(at []string, ignore [][]string) bool {
	return slices.ContainsFunc(ignore, func(rule []string) bool {
		return slices.EqualFunc(at, rule, func(segment, rule string) bool { return rule == "*" || segment == rule })
	})
}

// differ adds pointers to the members that differ, as deep as possible.
func differ(a, b any, at string, out *[]string) {
	if len(*out) >= maxPointers || reflect.DeepEqual(a, b) {
		return
	}
	step := strings.NewReplacer("~", "~0", "/", "~1")
	switch x := a.(type) {
	case map[string]any:
		if y, is := b.(map[string]any); is {
			all := maps.Clone(x)
			maps.Copy(all, y)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				differ(x[name], y[name], at+"/"+step.Replace(name), out)
			}
			return
		}
	case []any:
		if y, is := b.([]any); is {
			element := func(list []any, i int) any {
				if i < len(list) {
					return list[i]
				}
				return missing{}
			}
			for i := range max(len(x), len(y)) {
				differ(element(x, i), element(y, i), at+"/"+strconv.Itoa(i), out)
			}
			return
		}
	}
	*out = append(*out, at)
}

// missing stands for an element behind the end of a list.
type missing struct{}

// decode reads an object. Numbers of one value are equal however they are written.
func decode(data string) (o map[string]any, err error) {
	d := json.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	if err = d.Decode(&o); err == nil {
		numbers(o)
	}
	return o, err
}

// numbers replaces the numbers in v, and returns it.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			v[name] = numbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = numbers(value)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		switch {
		case err != nil:
			return v.String()
		case f == math.Trunc(f) && math.Abs(f) < 1<<53:
			return int64(f)
		}
		return f
	}
	return v
}

func encode(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic("drift: internal error: " + err.Error()) // it came out of JSON
	}
	return data
}
