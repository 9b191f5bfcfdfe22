package git

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/Masterminds/semver/v3"
)

// floors are the oldest versions of modules without a weakness that is known and
// matters here: what a server or a peer sends, ssh, and what is written to disk.
// govulncheck knows more of them where its database can be reached (.ci/vuln);
// these hold everywhere. An advisory belongs here within 7 days.
var floors = []struct{ module, version, why string }{
	{"github.com/go-git/go-git/v5", "v5.11.0", "CVE-2023-49568, CVE-2023-49569: replies without bounds, paths that lead elsewhere"},
	{"github.com/go-git/go-git/v5", "v5.13.0", "CVE-2025-21613, CVE-2025-21614: arguments in URLs, replies without bounds"},
	{"github.com/go-git/go-git/v5", "v5.16.5", "CVE-2026-25934: checksums of packs that are not compared"},
	{"github.com/go-git/go-git/v5", "v5.17.1", "CVE-2026-33762, CVE-2026-34165: panics"},
	{"github.com/go-git/go-git/v5", "v5.18.0", "CVE-2026-41506: credentials that go along with a redirect"},
	{"github.com/go-git/go-git/v5", "v5.19.1", "CVE-2026-45570, CVE-2026-45571, GHSA-w5pp-99ch-qj29: quotes in ssh commands, trees that write into .git, panics"},
	{"github.com/go-git/go-git/v5", "v5.19.2", "CVE-2026-71556, CVE-2026-71557: links, names of references that lead elsewhere"},
	{"golang.org/x/crypto", "v0.35.0", "CVE-2025-22869: memory without bounds during the key exchange of ssh"},
	{"golang.org/x/crypto", "v0.45.0", "CVE-2025-47914, CVE-2025-58181: panics and memory without bounds in ssh"},
	{"golang.org/x/oauth2", "v0.27.0", "CVE-2025-22868: memory without bounds for malformed tokens"},
	{"golang.org/x/net", "v0.38.0", "CVE-2025-22870, CVE-2025-22872: proxies passed by"},
	{"golang.org/x/net", "v0.60.0", "GO-2026-6603, 6611, 6612, 6617: memory, time and panics by frames of HTTP/2"},
}

// TestFloors holds go.mod against the floors.
func TestFloors(t *testing.T) {
	t.Parallel()
	for _, f := range floors {
		out, err := exec.Command("go", "list", "-m", "-json", f.module).Output()
		if err != nil {
			t.Fatalf("%s: %v", f.module, err)
		}
		var m struct {
			Version string
			Replace *struct{ Path, Version string }
		}
		if err := json.Unmarshal(out, &m); err != nil {
			t.Fatal(err)
		}
		if m.Replace != nil {
			t.Errorf("%s is replaced by %s %s: nobody watches that one", f.module, m.Replace.Path, m.Replace.Version)
		}
		at, err := semver.NewVersion(m.Version)
		if err != nil {
			t.Fatal(err)
		}
		if floor := semver.MustParse(f.version); at.LessThan(floor) {
			t.Errorf("%s is %s, must be %s or later: %s", f.module, at, floor, f.why)
		}
	}
}
