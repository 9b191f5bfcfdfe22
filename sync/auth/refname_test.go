package auth

import (
	"os/exec"
	"strings"
	"testing"
)

func TestCheckRefName(t *testing.T) {
	t.Parallel()
	good := []string{"main", "feature/a", "release-1.2", "v1", "a.b", "ümlaut", "a@b", "x{y"}
	bad := []string{"", "-x", "/a", "a/", "a.", "@", "a@{1}", "a..b", "a//b", "a b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", `a\b`,
		"a\tb", "a\x7fb", ".a", "a/.b", "a.lock", "a.lock/b", strings.Repeat("a", maxRefName+1)}
	for _, name := range good {
		if err := CheckRefName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range bad {
		if CheckRefName(name) == nil {
			t.Errorf("%q passes", name)
		}
	}
	if CheckRefName("a\u202eb") == nil {
		t.Error("a name that misleads the eye passes")
	}
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(good, bad...) {
		legal := exec.CommandContext(t.Context(), git, "check-ref-format", "--branch", name).Run() == nil
		if allowed := CheckRefName(name) == nil; allowed && !legal {
			t.Errorf("%q passes, but git refuses it", name)
		} else if !allowed && legal && len(name) <= maxRefName && name != "@" {
			t.Errorf("%q is refused, but git allows it", name)
		}
	}
}
