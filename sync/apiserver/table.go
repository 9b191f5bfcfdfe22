package apiserver

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"limpet/sync/api"
)

// nameDescription is the description of the column Name. Source: ObjectMeta.
var nameDescription = metav1.ObjectMeta{}.SwaggerDoc()["name"]

// table makes the table that kubectl prints, one row for each revealed object
// in the version of the request. A table of one object has its resourceVersion.
func (c *call) table(items [][]byte) (*metav1.Table, error) {
	include := metav1.IncludeObjectPolicy(c.req.URL.Query().Get("includeObject"))
	switch include {
	case "", metav1.IncludeMetadata, metav1.IncludeNone, metav1.IncludeObject:
	default:
		return nil, badRequest("Unable to convert to Table as requested: includeObject: Invalid value: %q: "+
			"must be 'Metadata', 'Object', 'None', or empty", include)
	}
	t := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: asTable, APIVersion: c.media.metaVersion()},
		ColumnDefinitions: columnsOf(c.kind),
		Rows:              []metav1.TableRow{},
	}
	for _, data := range items {
		obj, err := decodeObject(data)
		if err != nil {
			return nil, err
		}
		row := metav1.TableRow{}
		for _, column := range c.kind.Columns {
			row.Cells = append(row.Cells, cellOf(column, obj.Object))
		}
		switch include {
		case metav1.IncludeObject:
			row.Object = runtime.RawExtension{Raw: data}
		case metav1.IncludeNone:
		default:
			row.Object = runtime.RawExtension{Raw: metadataOf(c.media, data)}
		}
		t.Rows = append(t.Rows, row)
		t.ResourceVersion = obj.GetResourceVersion()
	}
	return t, nil
}

func columnsOf(k api.Kind) []metav1.TableColumnDefinition {
	out := make([]metav1.TableColumnDefinition, len(k.Columns))
	for i, c := range k.Columns {
		out[i] = metav1.TableColumnDefinition{
			Name:        c.Name,
			Type:        c.Type,
			Description: "Custom resource definition column (in JSONPath format): " + c.Path,
		}
		if c.Path == "" {
			out[i].Format, out[i].Description = "name", nameDescription
		}
	}
	return out
}

// cellOf returns the value of a column: an age for dates, nil for an absent value.
func cellOf(c api.Column, object map[string]any) any {
	value := c.Value(object)
	text, isText := value.(string)
	if value == nil || c.Type == "date" && !isText {
		return nil
	}
	if c.Type != "date" {
		return fmt.Sprint(value)
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "<invalid>"
	}
	return duration.HumanDuration(time.Since(at))
}
