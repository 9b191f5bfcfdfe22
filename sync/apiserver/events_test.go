package apiserver

import (
	"fmt"
	"testing"
	"time"
)

// Old Events are gone at the next request for Events, and so are the oldest of too many.
func TestEventsExpire(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := func(namespace string) string { return "/api/v1/namespaces/" + namespace + "/events" }
	seen := func(age time.Duration) string { return time.Now().Add(-age).UTC().Format(time.RFC3339) }
	body := func(name, last string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"involvedObject":{"kind":"Repository","name":"r"},"lastTimestamp":%q}`, name, last)
	}
	s.must("POST", path("default"), body("old", seen(eventsKept+time.Minute)))
	s.must("POST", path("other"), body("old", seen(eventsKept+time.Minute)))
	s.must("POST", path("default"), body("fresh", seen(time.Hour)))
	s.must("POST", path("default"), `{"metadata":{"name":"untold"},"involvedObject":{"kind":"Repository","name":"r"}}`)
	names := func() (out []string) {
		s.expired.Store(0)
		items, _ := s.must("GET", "/api/v1/events", "")["items"].([]any)
		for _, item := range items {
			out = append(out, at(item.(map[string]any), "metadata", "name").(string))
		}
		return out
	}
	if got := fmt.Sprint(names()); got != "[fresh untold]" {
		t.Error(got)
	}
	for i := range mostEvents {
		s.must("POST", path("default"), body(fmt.Sprintf("e%04d", i), seen(0)))
	}
	if got := names(); len(got) != mostEvents || got[0] != "e0000" {
		t.Errorf("%d: %q", len(got), got[:3])
	}
}
