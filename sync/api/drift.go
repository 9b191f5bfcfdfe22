package api

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ConditionDrifted is True while the server has something else than the commit that was synced last; limpet's own.
const ConditionDrifted = "Drifted"

// Values of AnnoDrift.
const (
	DriftReport  = "report" // the default: differences are looked for and reported
	DriftCorrect = "correct"
	DriftOff     = "off"
)

// DriftModes are the values of AnnoDrift.
var DriftModes = []string{DriftReport, DriftCorrect, DriftOff}

// DriftMode returns what is done about drift of a Repository.
func DriftMode(repo *unstructured.Unstructured) string {
	return cmp.Or(Annotation(repo, AnnoDrift), DriftReport)
}

const maxPointers = 100

var pointerForm = regexp.MustCompile(`^(/([^~/]|~[01])+)+$`)

// ParsePointers reads AnnoDriftIgnore: JSON pointers of RFC 6901, separated by commas or line ends. A segment "*" stands for
// each member or element.
func ParsePointers(text string) (out [][]string, err error) {
	for _, pointer := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' }) {
		if pointer = strings.TrimSpace(pointer); pointer == "" {
			continue
		}
		if !pointerForm.MatchString(pointer) {
			return nil, fmt.Errorf("%q is no JSON pointer, such as /spec/refresh", pointer)
		}
		segments := strings.Split(pointer[1:], "/")
		for i, s := range segments {
			segments[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		}
		if out = append(out, segments); len(out) > maxPointers {
			return nil, fmt.Errorf("more than %d pointers", maxPointers)
		}
	}
	return out, nil
}
