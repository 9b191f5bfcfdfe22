package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// quick answers every write at once, so that what is measured is the writer.
func quick(b *testing.B) *httptest.Server {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, api.DashboardGroup) {
			fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"dashboard.grafana.app","versions":[{"version":"v1"},{"version":"v0alpha1"}],"preferredVersion":{"version":"v1"}}`)
			return
		}
		fmt.Fprint(w, `{"metadata":{}}`)
	}))
	b.Cleanup(web.Close)
	return web
}

// boards makes dashboards of about 40 kB, indented as Grafana exports them.
func boards(n int) map[string][]byte {
	panels := strings.Repeat(`      {
        "datasource": { "type": "prometheus", "uid": "${source}" },
        "fieldConfig": { "defaults": { "unit": "short", "decimals": 2 }, "overrides": [] },
        "gridPos": { "h": 8, "w": 12, "x": 0, "y": 24 },
        "targets": [ { "expr": "sum(rate(http_requests_total{job=\"api\"}[5m])) by (code)", "refId": "A" } ],
        "title": "Requests by code", "type": "timeseries"
      },
`, 90)
	out := map[string][]byte{}
	for i := range n {
		out[fmt.Sprintf("hash-%d", i)] = fmt.Appendf(nil, "{\n  \"uid\": \"board-%d\",\n  \"title\": \"Board %d\",\n  \"panels\": [\n%s{}\n  ],\n  \"schemaVersion\": 41,\n  \"tags\": []\n}\n", i, i, panels)
	}
	return out
}

type blobs map[string][]byte

func (b blobs) Read(_ context.Context, hash string) ([]byte, error) { return b[hash], nil }

type silent struct{}

func (silent) Record(_ context.Context, r resources.Result) {
	if r.Err != nil {
		panic(r.Err)
	}
}
func (silent) TooManyErrors() error { return nil }

const benchBoards = 1000

// BenchmarkWriteChanged writes 1,000 changed dashboards, read, parsed and
// stamped.
func BenchmarkWriteChanged(b *testing.B) {
	web := quick(b)
	client, err := kube.Connect(b.Context(), kube.Config{Server: web.URL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	data := boards(benchBoards)
	var tree resources.Tree
	var live []resources.Item
	for i := range benchBoards {
		path := fmt.Sprintf("b%d.json", i)
		tree.Files = append(tree.Files, resources.TreeFile{Path: path, Hash: fmt.Sprintf("hash-%d", i)})
		live = append(live, resources.Item{Group: api.DashboardGroup, Resource: "dashboards", Name: fmt.Sprintf("board-%d", i), Path: path, Hash: "old", UID: "u", ResourceVersion: "1"})
	}
	s := &server{namespace: "default", dashboards: client, folders: client, served: &served{}}
	b.ReportAllocs()
	for b.Loop() {
		plan := resources.Full(resources.Target{Repository: "repo"}, tree, live, nil)
		a := resources.Apply{Server: s, Reader: blobs(data), Recorder: silent{}, Namespace: "default"}
		if _, err := a.Run(b.Context(), plan); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(benchBoards*float64(b.N)/b.Elapsed().Seconds(), "dashboards/s")
}

// BenchmarkBarePut is the yardstick: the same bytes by net/http alone, with the
// same concurrency.
func BenchmarkBarePut(b *testing.B) {
	web := quick(b)
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	data := boards(benchBoards)
	b.ReportAllocs()
	for b.Loop() {
		var g errgroup.Group
		g.SetLimit(resources.DefaultParallel)
		for hash, body := range data {
			g.Go(func() error {
				req, err := http.NewRequest(http.MethodPut, web.URL+"/"+hash, bytes.NewReader(body))
				if err != nil {
					return err
				}
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				return resp.Body.Close()
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(benchBoards*float64(b.N)/b.Elapsed().Seconds(), "dashboards/s")
}
