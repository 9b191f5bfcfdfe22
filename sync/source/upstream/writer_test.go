package upstream

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/source/artifact"
)

// slowClient takes a write in the time that it is given, and notes the deadline of the last one.
type slowClient struct {
	http.ResponseWriter
	takes    time.Duration
	deadline time.Time
}

func (c *slowClient) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }

func (c *slowClient) Write(p []byte) (int, error) {
	time.Sleep(c.takes)
	return len(p), nil
}

// TestWriterDeadline: the time to make a bundle is not the client's; that of its writes is, all
// together.
func TestWriterDeadline(t *testing.T) {
	for name, tt := range map[string]struct{ makes, takes, want time.Duration }{
		"a bundle that is made slowly": {10 * time.Minute, 0, artifact.TimeFor(3)},
		"a client that is slow":        {0, 25 * time.Second, artifact.TimeFor(3) - 50*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &slowClient{takes: tt.takes}
				w := &writer{Writer: client, control: http.NewResponseController(client), slots: make(chan struct{}, 1)}
				w.slots <- struct{}{}
				for range 3 {
					time.Sleep(tt.makes)
					if _, err := io.WriteString(w, "x"); err != nil {
						t.Fatal(err)
					}
				}
				if left := client.deadline.Sub(time.Now().Add(-tt.takes)); left != tt.want {
					t.Errorf("%s for the last write, want %s", left, tt.want)
				}
			})
		})
	}
}
