package api

import (
	"bytes"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// Text returns what the column shows of an object; "" when the member is not
// there. A path that cannot be parsed shows nothing: the table of kinds is our
// own and a test walks all of it.
func (c Column) Text(object map[string]any) string {
	path := c.Path
	if path == "" {
		path = ".metadata.name"
	}
	j := jsonpath.New(c.Name).AllowMissingKeys(true)
	if err := j.Parse("{" + path + "}"); err != nil {
		return ""
	}
	var out bytes.Buffer
	if err := j.Execute(&out, object); err != nil {
		return ""
	}
	return strings.TrimSpace(out.String())
}
