package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestLatencyIsThatOfTheLastCall(t *testing.T) {
	t.Parallel()
	const slow = 30 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-time.After(slow)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), Config{Server: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if got := c.Latency(); got != 0 {
		t.Errorf("%s before the first call", got)
	}
	if _, _, err := c.Do(t.Context(), http.MethodGet, "/slow", nil, "", nil); err != nil {
		t.Fatal(err)
	}
	if got := c.Latency(); got < slow {
		t.Errorf("%s after a call of %s", got, slow)
	}
}
