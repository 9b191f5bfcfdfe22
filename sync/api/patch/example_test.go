package patch_test

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api/patch"
)

// A patch changes the status only of the object that was read.
func Example() {
	repository := &unstructured.Unstructured{}
	repository.SetResourceVersion("42")
	ops := []patch.Op{
		patch.Version(repository),
		patch.Add("/status/conditions", []string{}),
		patch.Add("/metadata/annotations/"+patch.Escape("limpet/state"), "ready"),
	}
	for _, op := range ops {
		text, err := json.Marshal(op)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}

	// Output:
	// {"op":"test","path":"/metadata/resourceVersion","value":"42"}
	// {"op":"add","path":"/status/conditions","value":[]}
	// {"op":"add","path":"/metadata/annotations/limpet~1state","value":"ready"}
}
