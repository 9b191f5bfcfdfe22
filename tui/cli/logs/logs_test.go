package logs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestShow: which lines are printed, and that those of a terminal hold no control characters.
func TestShow(t *testing.T) {
	t.Parallel()
	line := func(age time.Duration) string {
		return fmt.Sprintf(`{"time":%q,"level":"INFO","msg":"pulled\u001b[2J","job":"default/team-sync","repo":"team"}`,
			time.Now().Add(-age).Format(time.RFC3339Nano))
	}
	for _, tt := range []struct {
		c     Command
		line  string
		shown bool
	}{
		{Command{}, line(0), true}, {Command{}, "panic: x", true}, {Command{}, `{"msg":"a\u009b2J"}`, true},
		{Command{}, "{\"msg\":\"a\u009b2J\"}", true}, {Command{}, "", false},
		{Command{Repo: "team"}, line(0), true}, {Command{Repo: "tea"}, line(0), false}, {Command{Repo: "team"}, "panic: x", false},
		{Command{Repo: "net"}, `{"msg":"x","repository":"net"}`, true},
		{Command{Job: "team-sync"}, line(0), true}, {Command{Job: "default/team-sync"}, line(0), true}, {Command{Job: "sync"}, line(0), false},
		{Command{Since: time.Minute}, line(time.Second), true}, {Command{Since: time.Minute}, line(time.Hour), false},
		{Command{Since: time.Minute}, `{"msg":"no time"}`, false},
		{Command{Repo: "team"}, `time=2026-01-02T03:04:05Z level=INFO msg="a \"b\"" repo=team`, true},
		{Command{Job: "x"}, `time=2026-01-02T03:04:05Z level=INFO msg=a repo=team`, false},
		{Command{Since: time.Minute}, `time=2026-01-02T03:04:05Z level=INFO msg=a`, false},
	} {
		for _, data := range []bool{false, true} {
			got := tt.c.show([]byte(tt.line), data)
			if want := tt.shown && (!data || strings.ContainsAny(tt.line, "{=")); (got != "") != want ||
				data && want && !json.Valid([]byte(got)) {
				t.Errorf("%+v %s data %t: %q", tt.c, tt.line, data, got)
			}
			for _, r := range got {
				if r < ' ' || r == 0x9b {
					t.Errorf("%q", got)
				}
			}
		}
	}
}
