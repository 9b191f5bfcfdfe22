package gitref

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
)

func TestNewest(t *testing.T) {
	t.Parallel()
	tags := strings.Fields("v0.9.0 v1.0.0 1.2.3 v1.10.0 v1.11.0-rc.1 v2.0.0 v2024.01.05 v3 v1.2 nightly 1.2.3.4 vv1.0.0 V9.9.9 v1..2 app/v1.5.0 app/1.6.0 app/v2.0.0-beta web/v7.7.7 refs site-0.1.0 v-1.0.0 v+1.0.0")
	for _, c := range []struct {
		s    Selector
		want string
	}{
		{Selector{SemVer: "*"}, "v2.0.0"},    // v2024.01.05 has zeros in front
		{Selector{SemVer: "1.x"}, "v1.10.0"}, // a number, not a text
		{Selector{SemVer: "~1.2"}, "1.2.3"},  // without a v
		{Selector{SemVer: ">=1.0.0 <2.0.0"}, "v1.10.0"},
		{Selector{SemVer: ">=1.0.0-0 <2.0.0"}, "v1.11.0-rc.1"}, // it asks for pre-releases
		{Selector{SemVer: "0.x || 2.0.x"}, "v2.0.0"},
		{Selector{SemVer: "1.2.3"}, "1.2.3"},
		{Selector{SemVer: "4.x"}, ""},
		{Selector{SemVer: "*", TagPrefix: "app/"}, "app/1.6.0"},
		{Selector{SemVer: "*-0", TagPrefix: "app/"}, "app/v2.0.0-beta"},
		{Selector{SemVer: "*", TagPrefix: "site-"}, "site-0.1.0"},
		{Selector{SemVer: "*", SemVerFilter: `^v1\.`}, "v1.10.0"},
		{Selector{SemVer: "*", TagPrefix: "app/", SemVerFilter: "^app/v"}, "app/v1.5.0"},
		{Selector{SemVer: "*", SemVerFilter: "^$"}, ""},
	} {
		if err := c.s.Check(); err != nil {
			t.Fatal(err)
		}
		got, err := c.s.Newest(slices.Values(tags))
		if err != nil || strings.Join(got.Tags, " ") != c.want {
			t.Errorf("%s: %+v, %v, want %q", c.s, got, err, c.want)
		}
	}
	got, _ := Selector{SemVer: "4.x"}.Newest(slices.Values(tags))
	if got.Versions != 6 || got.Highest != "v2.0.0" {
		t.Errorf("%+v", got)
	}
}

// TestEqualVersions lists what differs in metadata of the build or a v alone, whatever the order of
// the tags.
func TestEqualVersions(t *testing.T) {
	t.Parallel()
	tags := strings.Fields("1.0.0-rc.2+9 1.0.0 1.0.0+1 1.0.0+10 1.0.0+a v1.0.0 v1.0.0+2")
	for range 50 {
		rand.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
		got, err := (Selector{SemVer: ">=1.0.0-0"}).Newest(slices.Values(tags))
		if want := "1.0.0 1.0.0+1 1.0.0+10 1.0.0+a v1.0.0 v1.0.0+2"; err != nil || strings.Join(got.Tags, " ") != want {
			t.Fatalf("of %q it is %+v, %v, want %q", tags, got, err, want)
		}
	}
}

// TestStrictVersions has the rows of Flux's test of its version package, and those of
// Masterminds/semver for strict versions, with a v in front as Flux allows it.
func TestStrictVersions(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]bool{
		"v1.2.3": true, "v1.0": false, "v1": false, "v1.2.beta": false, "v1.2-5": false, "v1.2-beta.5": false, "\nv1.2": false,
		"v1.2.0-x.Y.0+metadata": true, "v1.2.0-x.Y.0+metadata-width-hypen": true, "v1.2.3-rc1-with-hypen": true, "v1.2.3.4": false,
		"v2024.01.15": false, "v01.2.3": false, "v1.02.3": false, "1.2.03": false, "vv1.2.3": false, "V1.2.3": false, "v1.2.3-01": false,
		"v1.2.3-0.a": true, "v1.2.3+01": true, "v0.0.0": true, "v1.2.3-": false, "v1.2.3+": false, "v-1.2.3": false, "1.2.3 ": false,
		"v18446744073709551616.0.0": false, "v1.2.2147483648": true, "1.2.3-alpha.-1": true, "1.2.3-alpha.01": false,
	} {
		got, err := Selector{SemVer: ">=0.0.0-0"}.Newest(slices.Values([]string{tag}))
		_, strict := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
		if err != nil || (got.Versions == 1) != want || (strict == nil) != want {
			t.Errorf("%q: %+v %v, semver says %v, want %v", tag, got, err, strict, want)
		}
	}
}

// FuzzVersion: whatever a tag is called, the order is one.
func FuzzVersion(f *testing.F) {
	f.Add("v1.2.3", "1.2.3+a", "v1.2.3-rc.1")
	f.Add("1.0.0+10", "1.0.0+9", "1.0.0+18446744073709551616")
	f.Add("v", "-", "+1.0.0")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		s := Selector{SemVer: ">=0.0.0-0"}
		tags := []string{a, b, c}
		want, err := s.Newest(slices.Values(tags))
		if err != nil {
			t.Fatal(err)
		}
		for _, order := range [][]string{{a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
			if got, _ := s.Newest(slices.Values(order)); !reflect.DeepEqual(got, want) {
				t.Fatalf("of %q it is %+v, of %q it is %+v", tags, want, order, got)
			}
		}
		for _, tag := range want.Tags {
			if strings.Count(tag, ".") < 2 {
				t.Fatalf("%q counts as a version", tag)
			}
		}
	})
}
