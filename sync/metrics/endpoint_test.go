package metrics

import (
	"net/http/httptest"
	"testing"
)

// TestAnswer: 200 while there is no problem, else 503 with a line for each.
func TestAnswer(t *testing.T) {
	t.Parallel()
	for problem, want := range map[string]struct {
		code int
		body string
	}{"": {200, "ok\n"}, "watch: a\ndriver: b": {503, "watch: a\ndriver: b\n"}} {
		w := httptest.NewRecorder()
		answer(func() string { return problem })(w, httptest.NewRequest("GET", "/healthz", nil))
		if w.Code != want.code || w.Body.String() != want.body {
			t.Errorf("%q: %d %q", problem, w.Code, w.Body)
		}
	}
}
