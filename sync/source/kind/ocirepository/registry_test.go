package ocirepository

import (
	"fmt"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestAnswers: what a repository has answered to is bounded, however many tags it gets.
func TestAnswers(t *testing.T) {
	a := answers{known: map[string]*answer{}}
	for n := range 10 * mostKnown {
		want := ocispec.Descriptor{Size: int64(n)}
		for range 2 {
			asked := 0
			got, err := a.get(fmt.Sprint("tag-", n), false, func() (ocispec.Descriptor, error) { asked++; return want, nil })
			if err != nil || got.Size != want.Size || asked > 1 {
				t.Fatal(got, asked, err)
			}
		}
	}
	if len(a.known) > mostKnown {
		t.Errorf("%d answers are kept", len(a.known))
	}
}
