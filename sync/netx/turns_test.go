package netx_test

import (
	"slices"
	"strings"
	"testing"

	"limpet/sync/netx"
)

// TestTurns: neither one host nor all that do not answer get every turn.
func TestTurns(t *testing.T) {
	silent := func(host string) bool { return strings.HasPrefix(host, "silent") }
	turns := netx.NewTurns(8, 3, silent)
	var left []func()
	enter := func(hosts ...string) (in []string) {
		for _, host := range hosts {
			if leave, ok := turns.Enter(host); ok {
				in, left = append(in, host), append(left, leave)
			}
		}
		return in
	}
	for _, c := range []struct{ hosts, want []string }{
		{[]string{"silent1", "silent2", "silent3", "silent4", "silent5", "silent1"}, []string{"silent1", "silent2", "silent3", "silent4"}},
		{[]string{"good", "good", "good", "good"}, []string{"good", "good", "good"}},
		{[]string{"other", "third"}, []string{"other"}},
	} {
		if in := enter(c.hosts...); !slices.Equal(in, c.want) {
			t.Errorf("%v: %v, want %v", c.hosts, in, c.want)
		}
	}
	for _, leave := range left {
		leave()
	}
	if in := enter("silent9", "good"); len(in) != 2 {
		t.Errorf("after all have left: %v", in)
	}
	one := netx.NewTurns(1, 1, silent)
	if _, ok := one.Enter("silent"); !ok {
		t.Error("a host that did not answer is never asked again")
	}
}
