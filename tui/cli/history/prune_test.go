package history

import (
	"strings"
	"testing"
	"time"

	"limpet/tui/cli/clitest"
)

// TestHistoryPrune: each way to say what is removed, in each form, and what stays.
func TestHistoryPrune(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ flags, out, left string }{
		{"--older-than 90m", "2 records removed", "u1"},
		{"--before 150m", "1 record removed", "u1 u2"},
		{"--before " + time.Now().Add(-30*time.Minute).UTC().Format(time.RFC3339) + " -o json", `"removed": 3`, ""},
		{"--keep 2 -o jsonl", `{"removed":1}`, "u1 u2"},
		{"--keep 0 -o yaml", "removed: 3", ""},
		{"--keep 7 -o name", "0", "u1 u2 u3"},
	} {
		t.Run(tt.flags, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			for n, uid := range []string{"u1", "u2", "u3"} {
				rec := clitest.Record(uid, "default", "boards", "success", 0)
				rec.Finished = time.Now().Add(-time.Duration(n+1) * time.Hour)
				s.Record(t, rec)
			}
			if out, _ := s.Must(t, 0, append([]string{"history", "prune"}, strings.Fields(tt.flags)...)...); strings.TrimSpace(out) != tt.out &&
				!strings.Contains(out, tt.out) {
				t.Errorf("%q, want %q", out, tt.out)
			}
			out, _ := s.Must(t, 0, "history", "list", "-o", "name")
			if got := strings.Join(strings.Fields(out), " "); got != tt.left {
				t.Errorf("left %q, want %q", got, tt.left)
			}
		})
	}
}

// TestHowAUIDBegins: at least four characters name the only job whose UID begins so.
func TestHowAUIDBegins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, uid := range []string{"80f5ce78-a", "80f5cd00-b", "80f-c"} {
		s.Record(t, clitest.Record(uid, "default", "boards", "success", 0))
	}
	for job, want := range map[string]string{"80f5ce78": "80f5ce78-a", "80f5cd": "80f5cd00-b", "80f5c": "", "80f": "", "ffff": "",
		"boards-sync": "80f"} {
		if code, out, errs := s.Call("history", "show", job); (code == 0) != (want != "") || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %s%s", job, code, out, errs)
		}
	}
	if out, _ := s.Must(t, 0, "history", "list"); !strings.Contains(out, "boards-sync") {
		t.Errorf("no job in\n%s", out)
	}
}
