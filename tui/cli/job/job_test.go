package job

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// TestMessageOfARest: how long a rest still lasts is counted from now, not from when the agent
// wrote it down.
func TestMessageOfARest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	const said = "attempt 2 of 3: the host is away"
	for _, tt := range []struct {
		state, until, want string
	}{
		{api.StatePending, strconv.FormatInt(now.Add(7*time.Second).UnixMilli(), 10), said + "; tried again in 7s"},
		{api.StatePending, strconv.FormatInt(now.Add(-time.Hour).UnixMilli(), 10), said + "; tried again in 20s"},
		{api.StatePending, "", said + "; tried again in 20s"},
		{api.StatePending, "soon", said + "; tried again in 20s"},
		{api.StateWorking, "", said + "; tried again in 20s"},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetAnnotations(map[string]string{api.AnnoNotBefore: tt.until})
		job := api.Job{Status: api.JobStatus{State: tt.state, Message: said + "; tried again in 20s"}}
		if got := message(now, u, job); got != tt.want {
			t.Errorf("%s until %q: %q, want %q", tt.state, tt.until, got, tt.want)
		}
	}
}
