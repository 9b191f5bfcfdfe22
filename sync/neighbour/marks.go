package neighbour

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// marks are the members that nobody but a controller writes. Those of sync are not
// among them: whoever runs or queues a job writes them too, and so is the time of
// the last webhook, which its receiver notes.
var marks = [...]struct {
	path []string
	what string // for people
}{
	{[]string{"status", "health", "checked"}, "health"},
	{[]string{"status", "observedGeneration"}, "observedGeneration"},
	{[]string{"status", "webhook", "lastRotated"}, "webhook"},
	{[]string{"status", "token", "lastUpdated"}, "token"},
}

// checked is the mark that every look of a controller moves.
const checked = 0

// values are what the marks say; 0 = nothing.
type values [len(marks)]int64

func valuesOf(u *unstructured.Unstructured) (out values) {
	for i, m := range marks {
		at, ok := any(u.Object), true
		for _, name := range m.path {
			var object map[string]any
			if object, ok = at.(map[string]any); !ok {
				break
			}
			at = object[name]
		}
		switch n := at.(type) {
		case int64:
			out[i] = n
		case float64:
			out[i] = int64(n)
		}
	}
	return out
}

// hand is who wrote a mark.
type hand int

const (
	nobody  hand = iota // nobody who can be named, or a person
	own                 // limpet, this agent or another
	foreign             // any other program
	untold              // the server does not keep who wrote what
)

// ownManager is the field manager of all limpets: their User-Agent up to the slash.
const ownManager = "limpet"

// personal are the beginnings of field managers with which people change objects,
// in small letters: what they write says nothing about a controller.
var personal = []string{"kubectl", "k9s", "lens", "headlamp", "mozilla", "curl", "wget", "httpie", "xh", "postman", "insomnia", "python", "ancient-changes", "before-first-apply"}

func handOf(manager string) hand {
	if manager == ownManager {
		return own
	}
	small := strings.ToLower(manager)
	for _, p := range personal {
		if small == "" || strings.HasPrefix(small, p) {
			return nobody
		}
	}
	return foreign
}

// writer says who wrote a mark last, and when by the server's clock; that is the
// last time the same program changed any field of the object.
func writer(u *unstructured.Unstructured, path []string) (who hand, manager string, at time.Time) {
	metadata, _ := u.Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	if len(entries) == 0 {
		return untold, "", time.Time{}
	}
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		if fields == nil || !holds(fields, path) {
			continue
		}
		name, _ := entry["manager"].(string)
		stamp, _ := entry["time"].(string)
		when, _ := time.Parse(time.RFC3339, stamp)
		// Two have a field in common when they wrote the same: no news of a neighbour.
		if h := handOf(name); who == nobody || h == own {
			who, manager, at = h, name, when
		}
	}
	return who, manager, at
}

// holds says whether a set of fields has the one at a path. A member without any
// below it stands for all of them.
func holds(fields map[string]any, path []string) bool {
	for _, name := range path {
		below, ok := fields["f:"+name].(map[string]any)
		if !ok {
			return false
		}
		if len(below) == 0 {
			return true
		}
		fields = below
	}
	return true
}
