package help

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"limpet/sync/api"
)

// fieldRow is a row of a table whose first cell names fields alone.
var fieldRow = regexp.MustCompile("(?m)^\\| (`[a-zA-Z][^|]*`) \\|")

// TestSourceFields: 'limpet help sources' has a row for each field of the spec of each kind of sources,
// and for no other.
func TestSourceFields(t *testing.T) {
	topics := Topics()
	page := topics[slices.IndexFunc(topics, func(t Topic) bool { return t.Name == "sources" })].Text
	_, page, _ = strings.Cut(page, "## Field by field")
	for kind, heading := range map[string]string{"GitRepository": "| spec |", "OCIRepository": "## OCIRepositories", "Bucket": "## Buckets",
		"HelmRepository": "| spec of a HelmRepository |", "HelmChart": "| spec of a HelmChart |", "ExternalArtifact": "## ExternalArtifacts"} {
		_, section, _ := strings.Cut(page, heading)
		_, section, _ = strings.Cut(section, "|---|")
		table, _, _ := strings.Cut(section, "\n\n")
		var rows []string
		for _, row := range fieldRow.FindAllStringSubmatch(table, -1) {
			for name := range strings.SplitSeq(row[1], ", ") {
				field, _, _ := strings.Cut(strings.TrimPrefix(strings.Trim(name, "`"), "spec."), ".")
				rows = append(rows, field)
			}
		}
		slices.Sort(rows)
		k, known := api.SourceKind(kind)
		spec, _ := k.Schema()["properties"].(map[string]any)["spec"].(map[string]any)
		fields, _ := spec["properties"].(map[string]any)
		if want := slices.Sorted(maps.Keys(fields)); !known || len(fields) == 0 || !slices.Equal(slices.Compact(rows), want) {
			t.Errorf("%s: %q, want %q", kind, slices.Compact(rows), want)
		}
	}
}
