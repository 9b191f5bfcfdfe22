package api

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

const goldenCRDs = "../../testdata/golden/crds.yaml"

func TestCRDsGolden(t *testing.T) {
	got := CRDs()
	if *update {
		if err := os.WriteFile(goldenCRDs, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenCRDs)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s; look at the change and run go test ./sync/api -run CRDs -update", goldenCRDs)
	}
}
