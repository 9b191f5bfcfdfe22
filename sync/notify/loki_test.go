package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/state"
	"limpet/sync/netx"
)

func TestNewLoki(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"https://loki.example/": "https://loki.example/loki/api/v1/push", "https://a/x/loki/api/v1/push": "https://a/x/loki/api/v1/push",
		"http://127.0.0.1:3100": "http://127.0.0.1:3100/loki/api/v1/push", "http://loki.example": "", "https://u:secret@loki.example": "",
		"https://loki.example?secret=1": "", "loki.example": "",
	} {
		got, err := NewLoki(LokiOptions{URL: value, Logger: slog.New(slog.DiscardHandler)})
		switch {
		case want == "" && (err == nil || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v", value, err)
		case want != "" && (err != nil || got.url != want):
			t.Errorf("%s: %v", value, err)
		}
	}
}

// TestLokiHeader: nothing is taken that no header can carry.
func TestLokiHeader(t *testing.T) {
	t.Parallel()
	for _, o := range []LokiOptions{{Tenant: "a\nb"}, {User: "a:b", PasswordFile: "loki_test.go"}, {User: "a"}} {
		o.URL = "https://loki"
		if _, err := NewLoki(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// openLoki opens a state file with the outbox of a Loki.
func openLoki(t *testing.T, path string, loki serve) (*state.Store, *Outbox) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, _, err := state.Open(t.Context(), state.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	target, err := NewLoki(LokiOptions{URL: "https://loki", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), Options{Store: store, Targets: []*Target{target}, Client: &netx.Client{Transport: loki, Timeout: Timeout}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	return store, b
}

// TestLokiRefusals: jobs that are too old for Loki delay no other, are tried for a day, and not often.
func TestLokiRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limpet.db")
	synctest.Test(t, func(t *testing.T) {
		const old = 20
		refused, taken := 0, 0
		store, b := openLoki(t, path, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), `old\"`) {
				refused++
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			taken++
			w.WriteHeader(http.StatusNoContent)
		})
		defer store.Close()
		add := func(uid, repository string) {
			t.Helper()
			if err := store.PutQueued(t.Context(), state.Record{UID: uid, Repository: repository, Labels: map[string]string{"a": repository},
				Finished: time.Now()}); err != nil {
				t.Fatal(err)
			}
			b.RecordQueued()
		}
		for i := range old {
			add(fmt.Sprint("u", i), "old")
		}
		add("young", "new")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		add("younger", "new")
		time.Sleep(time.Minute)
		synctest.Wait()
		if taken != 2 || refused != old {
			t.Errorf("%d taken, %d refused after two minutes", taken, refused)
		}
		time.Sleep(26 * time.Hour)
		synctest.Wait()
		if s := b.Status()[0]; s.Pending != 0 || s.Dropped != old || refused > 26*old {
			t.Errorf("%d attempts, %+v", refused, s)
		}
		cancel()
		<-ended
	})
}

// TestLokiOutage: after two days without Loki it gets each job once, the oldest first, but one that
// it refuses and one that the history has lost to its bounds.
func TestLokiOutage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limpet.db")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var got []string
		store, b := openLoki(t, path, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case time.Since(began) < 48*time.Hour:
				w.WriteHeader(http.StatusBadGateway)
			case strings.Contains(string(body), "u7"):
				w.WriteHeader(http.StatusBadRequest)
			default:
				got = append(got, string(body))
				w.WriteHeader(http.StatusNoContent)
			}
		})
		defer store.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		for i := range 10 {
			if err := store.PutQueued(ctx, state.Record{UID: fmt.Sprint("u", i), Namespace: "default", Name: "pull", Repository: "boards",
				Finished: time.Now(), Spec: json.RawMessage(`{"action": "pull"}`), Labels: map[string]string{"a": "b"}}); err != nil {
				t.Fatal(err)
			}
			b.RecordQueued()
			time.Sleep(3 * time.Hour)
		}
		if n, err := store.PruneHistory(ctx, time.Now()); n != 0 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
		if n, err := store.TrimHistory(ctx, 9); n != 1 || err != nil {
			t.Errorf("trimmed %d, %v", n, err)
		}
		time.Sleep(60 * time.Hour)
		synctest.Wait()
		first := `{"streams":[{"stream":{"from":"job-history","namespace":"default","repository":"boards"},"values":[["` +
			`946695600000000000","{\"kind\":\"Job\",\"apiVersion\":\"provisioning.grafana.app/v0alpha1\",\"metadata\":{` +
			`\"name\":\"pull\",\"namespace\":\"default\",\"uid\":\"u1\",\"labels\":{\"a\":\"b\"}},\"spec\":{\"action\":\"pull\"}}"]]}]}`
		if len(got) != 8 || got[0] != first || !strings.Contains(got[7], "u9") {
			t.Errorf("%d lines: %s", len(got), got)
		}
		if s := b.Status()[0]; s.Pending != 0 || s.Dropped != 2 || s.Sent != 8 {
			t.Errorf("%+v", s)
		}
		cancel()
		<-ended
	})
}

// TestLokiLine: a job that is too long for Loki is sent without its lists, and the page of a network
// that wants a login takes none.
func TestLokiLine(t *testing.T) {
	t.Parallel()
	target, err := NewLoki(LokiOptions{URL: "https://loki", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var media string
	var push struct {
		Streams []struct{ Values [][2]string }
	}
	client := &netx.Client{Timeout: Timeout, Transport: serve(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&push); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", media)
		w.WriteHeader(http.StatusOK)
	})}
	e := &Event{record: &state.Record{UID: "u", Action: "delete", Repository: "boards", Status: json.RawMessage(`{"state":"success"}`),
		Spec: json.RawMessage(`{"delete":{"paths":["` + strings.Repeat("p", mostLine) + `"]}}`)}}
	if err := target.send(t.Context(), client, nil, e); err != nil {
		t.Fatal(err)
	}
	var job struct{ Spec, Status map[string]any }
	line := push.Streams[0].Values[0][1]
	if err := json.Unmarshal([]byte(line), &job); err != nil || len(line) > mostLine || job.Spec["action"] != "delete" ||
		job.Spec["repository"] != "boards" || job.Status["state"] != "success" {
		t.Errorf("%d bytes, %v", len(line), err)
	}
	media = "text/html"
	if err := target.send(t.Context(), client, nil, e); netx.KindOf(err) != netx.Unavailable {
		t.Errorf("a page: %v", err)
	}
	client.Transport = serve(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "timestamp too old", http.StatusBadRequest)
	})
	if err := target.send(t.Context(), client, nil, e); netx.KindOf(err) != netx.Refused || !strings.Contains(err.Error(), "timestamp too old") {
		t.Errorf("a refusal: %v", err)
	}
}
