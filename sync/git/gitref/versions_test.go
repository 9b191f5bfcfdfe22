package gitref

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNewest(t *testing.T) {
	t.Parallel()
	tags := strings.Fields("v0.9.0 v1.0.0 1.2.3 v1.10.0 v1.11.0-rc.1 v2.0.0 v2024.01.05 v3 v1.2 nightly 1.2.3.4 vv1.0.0 V9.9.9 v1..2 app/v1.5.0 app/1.6.0 app/v2.0.0-beta web/v7.7.7 refs site-0.1.0 v-1.0.0 v+1.0.0")
	for _, c := range []struct {
		s    Selector
		want string
	}{
		{Selector{SemVer: "*"}, "v2024.01.05"}, // zeros in front are nothing
		{Selector{SemVer: "1.x"}, "v1.10.0"},   // a number, not a text
		{Selector{SemVer: "~1.2"}, "1.2.3"},    // without a v
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
		if err != nil || got.Tag != c.want {
			t.Errorf("%s: %+v, %v, want %q", c.s, got, err, c.want)
		}
	}
	got, _ := Selector{SemVer: "4.x"}.Newest(slices.Values(tags))
	if got.Versions != 7 || got.Highest != "v2024.01.05" {
		t.Errorf("%+v", got)
	}
}

// TestEqualVersions: what differs in metadata of the build alone has an order that
// does not depend on the order of the tags.
func TestEqualVersions(t *testing.T) {
	t.Parallel()
	order := strings.Fields("1.0.0-rc.2+9 1.0.0 1.0.0+1 1.0.0+10 1.0.0+2 1.0.0+a v1.0.0 v1.0.0+2")
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range order {
		for range 50 {
			tags := slices.Clone(order[:n+1])
			random.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
			if got, err := (Selector{SemVer: ">=1.0.0-0"}).Newest(slices.Values(tags)); err != nil || got.Tag != order[n] {
				t.Fatalf("seed %d: of %q it is %+v, %v, want %q", seed, tags, got, err, order[n])
			}
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
			if got, _ := s.Newest(slices.Values(order)); got != want {
				t.Fatalf("of %q it is %+v, of %q it is %+v", tags, want, order, got)
			}
		}
		if want.Tag != "" && strings.Count(want.Tag, ".") < 2 {
			t.Fatalf("%q counts as a version", want.Tag)
		}
	})
}
