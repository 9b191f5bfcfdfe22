package apiserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

func TestTransportAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	resp := s.open(t.Context(), "POST", folderPath, folder("a", "one", ""), "Content-Type", mediaJSON)
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated || !strings.Contains(string(data), `"title":"one"`) {
		t.Fatalf("%d %s %v", resp.StatusCode, data, err)
	}
	if resp.ContentLength != int64(len(data)) || resp.Header.Get("Content-Type") != mediaJSON || resp.Status != "201 Created" {
		t.Errorf("answer %+v", resp)
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err != nil || at.IsZero() {
		t.Errorf("Date %q: clients take the time of the server from it", resp.Header.Get("Date"))
	}
	resp = s.open(t.Context(), "HEAD", folderPath+"/a", "")
	if data, err := io.ReadAll(resp.Body); err != nil || len(data) > 0 || resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %d %s %v", resp.StatusCode, data, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

// The server's side of a watch ends with the client's, whichever way it ends:
// the bubble does not end before all goroutines in it have.
func TestTransportCancels(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(cancel context.CancelFunc, resp *http.Response){
		"context": func(cancel context.CancelFunc, _ *http.Response) { cancel() },
		"close": func(_ context.CancelFunc, resp *http.Response) {
			if err := resp.Body.Close(); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.must("POST", folderPath, folder("a", "one", ""))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp := s.open(ctx, "GET", folderPath+"?watch=1", "")
				if _, err := resp.Body.Read(make([]byte, 10)); err != nil { // the rest of the event waits
					t.Fatal(err)
				}
				synctest.Wait()
				stop(cancel, resp)
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Error("an answer that was cut off ends as if it were whole")
				} else if name == "context" && !errors.Is(err, context.Canceled) {
					t.Errorf("reading after the cancellation: %v", err)
				}
			})
		})
	}
}

func TestTransportRefusesAfterCancel(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://in-process"+folderPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Transport().RoundTrip(req)
	if err == nil {
		// The answer may have been faster than the look at the context.
		_, err = io.ReadAll(resp.Body)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled request: %v", err)
	}
}

// A fault of the handler is the caller's error, not the end of the process.
func TestTransportSurvivesPanic(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.mux.HandleFunc("GET /fault", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("some"))
		panic("on purpose")
	})
	resp := s.open(t.Context(), "GET", "/fault", "")
	if data, err := io.ReadAll(resp.Body); err == nil || string(data) != "some" {
		t.Errorf("%q %v", data, err)
	}
}
