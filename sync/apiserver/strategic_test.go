package apiserver

import (
	"testing"
)

func TestStrategicMerge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, before, patch, want string }{
		{"members merge", `{"data":{"a":"1","b":"2"}}`, `{"data":{"b":"3","c":"4"}}`, `{"data":{"a":"1","b":"3","c":"4"}}`},
		{"null removes", `{"data":{"a":"1"},"type":"T"}`, `{"data":{"a":null}}`, `{"data":{},"type":"T"}`},
		{"replace", `{"data":{"a":"1"}}`, `{"data":{"$patch":"replace","b":"2"}}`, `{"data":{"b":"2"}}`},
		{"delete", `{"data":{"a":"1"},"type":"T"}`, `{"data":{"$patch":"delete"}}`, `{"type":"T"}`},
		{"retain keys", `{"data":{"a":"1","b":"2"}}`, `{"data":{"$retainKeys":["b"],"b":"3"}}`, `{"data":{"b":"3"}}`},
		{"other lists are replaced", `{"x":{"l":[1,2]}}`, `{"x":{"l":[3]}}`, `{"x":{"l":[3]}}`},
		{"finalizers are added", `{"metadata":{"finalizers":["a"]}}`, `{"metadata":{"finalizers":["b","a"],"$setElementOrder/finalizers":["a","b"]}}`, `{"metadata":{"finalizers":["a","b"]}}`},
		{"finalizers are taken", `{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}`, `{"metadata":{"finalizers":["b"]}}`},
		{"owners merge by uid", `{"metadata":{"ownerReferences":[{"uid":"1","name":"x"}]}}`,
			`{"metadata":{"ownerReferences":[{"uid":"1","name":"y"},{"uid":"2","name":"z"}]}}`,
			`{"metadata":{"ownerReferences":[{"name":"y","uid":"1"},{"name":"z","uid":"2"}]}}`},
		{"owners go by uid", `{"metadata":{"ownerReferences":[{"uid":"1"},{"uid":"2"}]}}`,
			`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"1"},{"$patch":"delete","uid":"3"}]}}`,
			`{"metadata":{"ownerReferences":[{"uid":"2"}]}}`},
		{"a text becomes an object", `{"a":"x"}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := strategicPatched([]byte(c.before), []byte(c.patch), "Ignore")
			if err != nil || string(got) != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
	if _, _, err := strategicPatched([]byte(`{}`), []byte(`[]`), "Ignore"); err == nil {
		t.Error("a list is taken for a patch")
	}
}
