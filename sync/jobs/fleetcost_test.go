package jobs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// costsFile is where measured costs are written; the fleet reads them from
// testdata/fleet.json.
var costsFile = flag.String("costs", "", "measure the costs of the API machinery at full size and write them into this `file`")

// costs are those of an API server, measured on the real machinery: etcd
// without fsync, clients and server on one machine. Processor times are those of
// the server and its etcd together, clients not included.
type costs struct {
	Measured string // when and where

	// What a client waits for one call when nothing else happens, median.
	Get, Put, Post, Delete time.Duration
	// Processor time of one call.
	GetCPU, WriteCPU time.Duration
	// Writes is how many writes a second one server takes from 16 clients.
	Writes float64

	// Processor time of one event for one watch: one that receives it, one
	// whose label selector does not pick it, one of another namespace.
	EventCPU, FilteredCPU, ForeignCPU time.Duration
	EventBytes                        float64 // of a job, as JSON before TLS

	// Of one object in a full list and in the initial events of a watch, and in
	// a list whose selector does not pick it.
	ListCPU, InitialCPU, ListFilteredCPU time.Duration
	ListBytes                            float64

	// Connect is the processor time of one new TLS connection.
	Connect time.Duration
}

// TestCostsOfTheAPI measures costs. Without -costs it is small and judges only
// that each kind of watch receives what it should.
func TestCostsOfTheAPI(t *testing.T) {
	full := *costsFile != ""
	n := func(small, large int) int {
		if full {
			return large
		}
		return small
	}
	b := newBench(t)
	c := costs{Measured: *costsFile}
	if host, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, model, _ := strings.Cut(string(host), "model name\t: ")
		model, _, _ = strings.Cut(model, "\n")
		c.Measured = time.Now().UTC().Format(time.DateOnly) + ", " + model
	}
	b.calls(&c, n(10, 300))
	b.writes(&c, n(20, 3000))
	b.watches(&c, n(3, 300), n(10, 500))
	b.lists(&c, n(20, 1000), n(2, 60))
	b.connects(&c, n(2, 300))
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	if full {
		if err := os.WriteFile(*costsFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// bench is a real API server and clients that load it.
type bench struct {
	t      *testing.T
	server *testenv.Server
	client *kube.Client
	http   *http.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := testenv.Start(t, testenv.Options{})
	client, err := kube.Connect(t.Context(), kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &bench{t: t, server: s, client: client, http: s.Client(t)}
}

// sample is a job as Grafana makes it, claimed and with progress.
func sample(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job",
		"spec":   map[string]any{"action": "pull", "repository": "site-dashboards", "pull": map[string]any{"incremental": true}},
		"status": map[string]any{"state": "working", "started": int64(1_790_000_000_000), "message": "job started", "progress": float64(12.5)}}}
	u.SetName(name)
	u.SetLabels(map[string]string{api.LabelRepository: "site-dashboards", api.LabelClaim: "1790000000000", api.LabelClaimOwner: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})
	return u
}

func (b *bench) create(namespace, name string) *unstructured.Unstructured {
	b.t.Helper()
	u, err := b.client.Resource(api.Jobs).Namespace(namespace).Create(b.t.Context(), sample(name), metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return u
}

func (b *bench) update(u *unstructured.Unstructured, n int) *unstructured.Unstructured {
	b.t.Helper()
	_ = unstructured.SetNestedField(u.Object, fmt.Sprint("step ", n), "status", "message")
	u, err := b.client.Resource(api.Jobs).Namespace(u.GetNamespace()).Update(b.t.Context(), u, metav1.UpdateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return u
}

// spent is the processor time of the server while fn runs, per unit.
func (b *bench) spent(units int, fn func()) time.Duration {
	b.t.Helper()
	before := b.server.CPU(b.t)
	fn()
	return (b.server.CPU(b.t) - before) / time.Duration(units)
}

func middle(v []time.Duration) time.Duration { slices.Sort(v); return v[len(v)/2] }

func (b *bench) calls(c *costs, n int) {
	jobs := b.client.Resource(api.Jobs).Namespace("calls")
	var get, put, post, del []time.Duration
	clock := func(into *[]time.Duration, fn func()) {
		began := time.Now()
		fn()
		*into = append(*into, time.Since(began))
	}
	for i := range n {
		name := fmt.Sprint("j", i)
		var u *unstructured.Unstructured
		clock(&post, func() { u = b.create("calls", name) })
		clock(&get, func() {
			if _, err := jobs.Get(b.t.Context(), name, metav1.GetOptions{}); err != nil {
				b.t.Fatal(err)
			}
		})
		clock(&put, func() { b.update(u, i) })
		clock(&del, func() {
			if err := jobs.Delete(b.t.Context(), name, metav1.DeleteOptions{}); err != nil {
				b.t.Fatal(err)
			}
		})
	}
	c.Get, c.Put, c.Post, c.Delete = middle(get), middle(put), middle(post), middle(del)
}

func (b *bench) writes(c *costs, n int) {
	const at = 16
	var took time.Duration
	u := make([]*unstructured.Unstructured, at)
	for i := range u {
		u[i] = b.create("writes", fmt.Sprint("j", i))
	}
	c.WriteCPU = b.spent(n, func() {
		began := time.Now()
		var all sync.WaitGroup
		for w := range at {
			all.Go(func() {
				for i := range n / at {
					u[w] = b.update(u[w], i)
				}
			})
		}
		all.Wait()
		took = time.Since(began)
	})
	c.Writes = float64(n/at*at) / took.Seconds()
	c.GetCPU = b.spent(n, func() {
		for range n {
			if _, err := b.client.Resource(api.Jobs).Namespace("writes").Get(b.t.Context(), "j0", metav1.GetOptions{}); err != nil {
				b.t.Fatal(err)
			}
		}
	})
}

// tap is one watch over a connection of its own.
type tap struct {
	events atomic.Int64
	bytes  atomic.Int64
}

// watch opens a watch and counts what it receives until ctx ends.
func (b *bench) watch(ctx context.Context, all *sync.WaitGroup, path string) *tap {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.server.Client(b.t).Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b.t.Fatalf("watch %s: %s", path, resp.Status)
	}
	w := &tap{}
	all.Go(func() {
		defer resp.Body.Close()
		lines := bufio.NewReaderSize(resp.Body, 64<<10)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				return
			}
			if !bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
				w.events.Add(1)
				w.bytes.Add(int64(len(line)))
			}
		}
	})
	return w
}

const jobsPath = "/apis/provisioning.grafana.app/v0alpha1"

// watches measures what one event costs for each watch that is open.
func (b *bench) watches(c *costs, watches, events int) {
	u := b.create("seen", "j")
	change := func() {
		for i := range events {
			u = b.update(u, i)
		}
	}
	alone := b.spent(events, change)
	measure := func(path string, wanted int) (each time.Duration, size float64) {
		ctx, cancel := context.WithCancel(b.t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		path += "watch=true&resourceVersion=" + u.GetResourceVersion()
		list := make([]*tap, watches)
		for i := range list {
			list[i] = b.watch(ctx, &all, path)
		}
		cost := b.spent(events, func() {
			change()
			for _, w := range list {
				until(b.t, time.Minute, func() bool { return w.events.Load() >= int64(wanted) })
			}
		})
		sum := int64(0)
		for _, w := range list {
			if got := int(w.events.Load()); got != wanted {
				b.t.Errorf("watch of %s received %d events, want %d", path, got, wanted)
			}
			sum += w.bytes.Load()
		}
		return max(cost-alone, 0) / time.Duration(watches), float64(sum) / float64(watches*events)
	}
	c.EventCPU, c.EventBytes = measure(jobsPath+"/jobs?", events)
	c.FilteredCPU, _ = measure(jobsPath+"/jobs?labelSelector="+api.LabelRepository+"%3Dother&", 0)
	c.ForeignCPU, _ = measure(jobsPath+"/namespaces/other/jobs?", 0)
}

// lists measures full lists and initial events.
func (b *bench) lists(c *costs, objects, times int) {
	for i := range objects {
		b.create("many", fmt.Sprint("j", i))
	}
	read := func(path string, last func(line []byte) bool) (size int64) {
		ctx, cancel := context.WithCancel(b.t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.URL+jobsPath+"/namespaces/many/jobs?"+path, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		resp, err := b.http.Do(req)
		if err != nil {
			b.t.Fatal(err)
		}
		defer resp.Body.Close()
		if last == nil {
			size, _ = io.Copy(io.Discard, resp.Body)
			return size
		}
		lines := bufio.NewReaderSize(resp.Body, 64<<10)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				b.t.Fatal(err)
			}
			size += int64(len(line))
			if last(line) {
				return size
			}
		}
	}
	end := func(line []byte) bool { return bytes.Contains(line, []byte(metav1.InitialEventsAnnotationKey)) }
	for range 2 { // the machinery warms up
		read("resourceVersion=0", nil)
	}
	c.ListCPU = b.spent(objects*times, func() {
		for range times {
			c.ListBytes = float64(read("resourceVersion=0", nil)) / float64(objects)
		}
	})
	c.InitialCPU = b.spent(objects*times, func() {
		for range times {
			read("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=60", end)
		}
	})
	c.ListFilteredCPU = b.spent(objects*times, func() {
		for range times {
			read("resourceVersion=0&labelSelector="+api.LabelRepository+"%3Dother", nil)
		}
	})
}

// connects measures new connections.
func (b *bench) connects(c *costs, n int) {
	clients := make([]*http.Client, n)
	for i := range clients {
		clients[i] = b.server.Client(b.t)
	}
	c.Connect = b.spent(n, func() {
		for _, client := range clients {
			resp, err := client.Get(b.server.URL + "/readyz")
			if err != nil {
				b.t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}
