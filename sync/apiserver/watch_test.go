package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/state"
	"limpet/sync/api"
)

func TestWatchFromNowOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.must("POST", folderPath, folder("a", "one", ""))
	w := s.follow("resourceVersion=" + revisionOf(first))
	s.must("POST", folderPath, folder("b", "two", ""))
	s.must("PATCH", folderPath+"/a", `{"spec":{"title":"new"}}`)
	s.must("PATCH", folderPath+"/a", `{"spec":{"title":"new"}}`) // without effect
	s.must("DELETE", folderPath+"/b", "")
	w.sees("ADDED b", "MODIFIED a")
	gone := w.sees("DELETED b")
	if list := s.must("GET", folderPath, ""); revisionOf(list) != gone.Object.Metadata.ResourceVersion {
		t.Errorf("the deletion has revision %s, the list %s", gone.Object.Metadata.ResourceVersion, revisionOf(list))
	}
}

// An object that begins to match is added, one that ceases to is deleted.
func TestWatchSelectors(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	byLabel := s.follow("labelSelector=" + "claim%3C100")
	byName := s.follow("fieldSelector=metadata.name%3Db")
	s.must("POST", folderPath, folder("a", "", `,"labels":{"claim":"50"}`))
	s.must("POST", folderPath, folder("b", "", `,"labels":{"claim":"200"}`))
	s.must("PATCH", folderPath+"/a", `{"spec":{"x":1}}`)
	s.must("PATCH", folderPath+"/a", `{"metadata":{"labels":{"claim":"100"}}}`)
	s.must("PATCH", folderPath+"/b", `{"metadata":{"labels":{"claim":"99"}}}`)
	s.must("DELETE", folderPath+"/a", "")
	s.must("DELETE", folderPath+"/b", "")
	byLabel.sees("ADDED a", "MODIFIED a")
	left := byLabel.sees("DELETED a")
	byLabel.sees("ADDED b", "DELETED b")
	byName.sees("ADDED b", "MODIFIED b", "DELETED b")
	if left.Object.Metadata.ResourceVersion == "" {
		t.Error("an object that ceased to match has no revision")
	}
}

func TestWatchList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, name := range []string{"c", "a", "b"} {
		s.must("POST", folderPath, folder(name, "", ""))
	}
	const initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&"
	w := s.follow(initial + "allowWatchBookmarks=true")
	end := w.sees("ADDED a", "ADDED b", "ADDED c", "END")
	if want := revisionOf(s.must("GET", folderPath, "")); end.Object.Metadata.ResourceVersion != want {
		t.Errorf("the initial events end at %s, want %s", end.Object.Metadata.ResourceVersion, want)
	}
	s.must("DELETE", folderPath+"/a", "")
	w.sees("DELETED a")
	// Without bookmarks the objects come all the same, as they do for any version.
	for _, query := range []string{initial, "", "resourceVersion=0"} {
		s.follow(query).sees("ADDED b", "ADDED c")
	}
}

// Nobody waits for ever for a version that does not come.
func TestWatchOfTheFuture(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		for _, query := range []string{"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "resourceVersionMatch=NotOlderThan", ""} {
			began := time.Now()
			code, status := s.call("GET", folderPath+"?resourceVersion=99999999999999999&"+query, "")
			if code != http.StatusGatewayTimeout || at(status, "details", "causes") == nil || time.Since(began) != freshTimeout {
				t.Errorf("%s: %d %v after %s", query, code, status, time.Since(began))
			}
		}
	})
}

func TestWatchTooOld(t *testing.T) {
	t.Parallel()
	s := narrowSite(t)
	s.follow("resourceVersion=1").sees("ERROR 410 Expired")
	first := revisionOf(s.must("POST", folderPath, folder("a", "", "")))
	for n := range narrowWindow {
		s.must("PATCH", folderPath+"/a", fmt.Sprintf(`{"spec":{"n":%d}}`, n))
	}
	w := s.follow("resourceVersion=" + first)
	w.sees("MODIFIED a")
	s.must("PATCH", folderPath+"/a", `{"spec":{"n":-1}}`)
	w = s.follow("resourceVersion=" + first)
	w.sees("ERROR 410 Expired")
	w.ends()
}

// A client that does not read holds one event and no more, and learns that it
// has fallen behind.
func TestWatchSlow(t *testing.T) {
	t.Parallel()
	s := narrowSite(t)
	w := s.follow("resourceVersion=" + revisionOf(s.must("POST", folderPath, folder("a", "", ""))))
	for n := range 3 * narrowWindow {
		s.must("PATCH", folderPath+"/a", fmt.Sprintf(`{"spec":{"n":%d}}`, n))
	}
	count := 0
	for {
		event, ok := w.next()
		if !ok {
			t.Fatal("watch ended without a word")
		}
		if event.String() == "ERROR 410 Expired" {
			break
		}
		count++
	}
	if count > narrowWindow {
		t.Errorf("%d events were held for a client that did not read", count)
	}
	w.ends()
}

func TestWatchTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		start := revisionOf(s.must("POST", folderPath, folder("a", "", "")))
		began := time.Now()
		w := s.follow("allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion=" + start)
		// Bookmarks move on with changes of other resources.
		s.must("POST", base+"jobs", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"j"},"spec":{"action":"pull","repository":"r","pull":{}}}`)
		mark := w.sees("BOOKMARK")
		if since := time.Since(began); since != bookmarkInterval {
			t.Errorf("the first bookmark comes after %s", since)
		}
		if mark.Object.Metadata.ResourceVersion <= start || mark.Object.Metadata.Name != "" {
			t.Errorf("bookmark %+v after %s", mark, start)
		}
		w.sees("BOOKMARK", "BOOKMARK")
		if since := time.Since(began); since != 148*time.Second {
			t.Errorf("the last bookmark comes after %s", since)
		}
		w.ends()
		if since := time.Since(began); since != 150*time.Second {
			t.Errorf("the watch ends after %s", since)
		}
		if err := w.lines.Err(); err != nil {
			t.Errorf("the end of a watch is an error: %v", err)
		}
		// One that has had bookmarks goes on from the last, however long ago
		// the last event of its resource was.
		s.follow("timeoutSeconds=1&resourceVersion=" + mark.Object.Metadata.ResourceVersion).ends()
		began = time.Now()
		s.follow("resourceVersion=" + mark.Object.Metadata.ResourceVersion).ends()
		if since := time.Since(began); since < minWatchTimeout || since > 2*minWatchTimeout {
			t.Errorf("a watch without a timeout lasts %s", since)
		}
	})
}

func TestWatchEndsWithServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.follow("")
		synctest.Wait()
		s.close()
		w.ends()
	})
}

func TestWatchForms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, watchForms)
}

func watchForms(t *testing.T) {
	s := newSite(t)
	s.must("POST", folderPath, folder("a", "one", `,"labels":{"x":"y"}`))
	s.must("POST", folderPath, folder("b", "two", ""))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines := func(accept, path string) (out []map[string]any) {
		resp := s.open(ctx, "GET", path+"?watch=1&timeoutSeconds=1", "", "Accept", accept)
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var v map[string]any
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatal(err)
			}
			out = append(out, v)
		}
		return out
	}
	tables := lines("application/json;as=Table;v=v1;g=meta.k8s.io", folderPath)
	if len(tables) != 2 || at(tables[0], "object", "columnDefinitions") == nil || at(tables[1], "object", "columnDefinitions") != nil || at(tables[1], "object", "kind") != "Table" {
		t.Errorf("tables: %v", tables)
	}
	metas := lines("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", folderPath)
	if len(metas) != 2 || at(metas[0], "object", "kind") != "PartialObjectMetadata" || at(metas[0], "object", "spec") != nil || at(metas[0], "object", "metadata", "labels", "x") != "y" {
		t.Errorf("metadata: %v", metas)
	}
	if older := lines("application/json", strings.Replace(folderPath, "/v1/", "/v1beta1/", 1)); at(older[0], "object", "apiVersion") != "folder.grafana.app/v1beta1" {
		t.Errorf("other version: %v", older)
	}
	if code, _ := s.call("GET", folderPath+"?watch=1&sendInitialEvents=true", ""); code != http.StatusUnprocessableEntity {
		t.Errorf("contradicting parameters are answered with %d", code)
	}
	if resp := s.open(ctx, "GET", folderPath+"?watch=1", "", "Accept", "application/yaml"); resp.StatusCode != http.StatusNotAcceptable {
		t.Errorf("a watch in YAML is answered with %d", resp.StatusCode)
	}
}

// TestWatchListOfManyUnderWrites: the initial events of a watch are read piece
// by piece, while the objects change. At every moment the client knows a prefix
// of them as they were together, and at the bookmark all.
func TestWatchListOfManyUnderWrites(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const n = 3*beginChunk + 17
	name := func(i int) string { return fmt.Sprintf("folder-%04d", i) }
	for i := 0; i < n; i += 2 {
		s.must("POST", folderPath, folder(name(i), "", ""))
	}
	w := s.follow("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	known := map[string]string{} // name -> version
	for end := false; !end; {
		event, ok := w.next()
		if !ok {
			t.Fatal("the watch ended")
		}
		m := event.Object.Metadata
		_, has := known[m.Name]
		switch event.Type {
		case "ADDED":
			if has {
				t.Errorf("%s is added twice", m.Name)
			}
			known[m.Name] = m.ResourceVersion
		case "MODIFIED":
			if !has {
				t.Errorf("%s changes before it is added", m.Name)
			}
			known[m.Name] = m.ResourceVersion
		case "DELETED":
			if !has {
				t.Errorf("%s is deleted before it is added", m.Name)
			}
			delete(known, m.Name)
		default:
			if end = event.String() == "END"; !end {
				t.Fatalf("%s", event)
			}
		}
		for range 2 {
			switch i := r.IntN(n); r.IntN(3) {
			case 0:
				s.call("POST", folderPath, folder(name(i), "", ""))
			case 1:
				s.call("PATCH", folderPath+"/"+name(i), fmt.Sprintf(`{"spec":{"x":%d}}`, r.IntN(1000)))
			case 2:
				s.call("DELETE", folderPath+"/"+name(i), "")
			}
		}
	}
	// What happened after the bookmark comes as in any other watch.
	list, _ := s.must("GET", folderPath, "")["items"].([]any)
	want := map[string]string{}
	for _, item := range list {
		object, _ := item.(map[string]any)
		version, _ := at(object, "metadata", "resourceVersion").(string)
		folder, _ := at(object, "metadata", "name").(string)
		want[folder] = version
	}
	last := s.must("POST", folderPath, folder("the-last-one", "", ""))
	for known["the-last-one"] == "" {
		event, ok := w.next()
		if !ok {
			t.Fatal("the watch ended")
		}
		if m := event.Object.Metadata; event.Type == "DELETED" {
			delete(known, m.Name)
		} else if m.Name != "" {
			known[m.Name] = m.ResourceVersion
		}
	}
	want["the-last-one"] = revisionOf(last)
	if !maps.Equal(known, want) {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if known[name] != want[name] {
				t.Errorf("%s: %q, want %q", name, known[name], want[name])
			}
		}
		t.Errorf("%d objects, want %d", len(known), len(want))
	}
}

// TestWatchListFallsBehind: a client that takes the initial events more slowly
// than the window of the server moves learns that it has to begin again.
func TestWatchListFallsBehind(t *testing.T) {
	t.Parallel()
	s := narrowSite(t)
	for i := range beginChunk + 1 {
		s.must("POST", folderPath, folder(fmt.Sprintf("folder-%04d", i), "", ""))
	}
	w := s.follow("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	w.sees("ADDED folder-0000")
	for i := range 2 * narrowWindow {
		s.must("PATCH", folderPath+"/folder-0000", fmt.Sprintf(`{"spec":{"x":%d}}`, i))
	}
	for i := 1; i < beginChunk; i++ {
		w.sees(fmt.Sprintf("ADDED folder-%04d", i))
	}
	w.sees("ERROR 410 Expired")
	w.ends()
}

// change makes the n-th event of a feed, of the given size.
func change(n uint64, size int, at time.Time) event {
	return event{revision: n, kind: modified, namespace: "default", name: "a", object: bytes.Repeat([]byte("x"), size), at: at}
}

// held is what the feed keeps.
func (f *feed) held() (events, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events), f.bytes
}

func revisions(events []event) (out []uint64) {
	for _, e := range events {
		out = append(out, e.revision)
	}
	return out
}

func TestFeedWindow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := newFeed(3, 10)
	if _, moved, ok := f.after(10); !ok || moved == nil {
		t.Error("a watch cannot begin at the revision of the start")
	}
	if _, _, ok := f.after(9); ok {
		t.Error("a watch begins before the start")
	}
	for n := uint64(11); n <= 15; n++ {
		f.add([]event{change(n, 10, now)}, now)
	}
	if events, _, ok := f.after(12); !ok || fmt.Sprint(revisions(events)) != "[13 14 15]" {
		t.Errorf("after 12: %v %v", revisions(events), ok)
	}
	if events, _, ok := f.after(13); !ok || fmt.Sprint(revisions(events)) != "[14 15]" {
		t.Errorf("after 13: %v %v", revisions(events), ok)
	}
	if _, _, ok := f.after(11); ok || f.oldest() != 12 {
		t.Errorf("the window holds more than 3 events; oldest %d", f.oldest())
	}
	if events, ok := f.since(12, 14); !ok || fmt.Sprint(revisions(events)) != "[13 14]" {
		t.Errorf("since 12 to 14: %v %v", revisions(events), ok)
	}
	if _, ok := f.since(11, 14); ok {
		t.Error("since 11 is answered")
	}
}

func TestFeedBytes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := newFeed(1000, 0)
	for n := uint64(1); n <= 100; n++ {
		f.add([]event{change(n, feedBytes/10, now)}, now)
		if f.bytes > feedBytes+feedBytes/10 {
			t.Fatalf("%d bytes after %d events", f.bytes, n)
		}
	}
	if got := len(f.events); got != 9 {
		t.Errorf("%d events are held, want 9", got)
	}
	// One that is larger than the whole window stays until the next comes, so
	// that watches that are up to date see it.
	f.add([]event{change(101, 2*feedBytes, now)}, now)
	if events, _, ok := f.after(100); !ok || len(events) != 1 {
		t.Errorf("the large event is lost: %v", ok)
	}
	f.add([]event{change(102, 10, now)}, now)
	if _, _, ok := f.after(100); ok || f.bytes > 200 {
		t.Errorf("the large event is still held: %d bytes", f.bytes)
	}
}

func TestFeedBatches(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := newFeed(1000, 0)
	for n := uint64(1); n <= 600; n++ {
		f.add([]event{change(n, 1, now)}, now)
	}
	position, seen := uint64(0), 0
	for {
		events, moved, ok := f.after(position)
		if !ok || len(events) > feedBatch {
			t.Fatalf("%d events at once", len(events))
		}
		if moved != nil {
			break
		}
		seen += len(events)
		position = events[len(events)-1].revision
	}
	if seen != 600 {
		t.Errorf("%d events, want 600", seen)
	}
}

// A burst leaves no more behind than the window, and time takes that too.
func TestFeedForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		defer s.close()
		k, _ := kindOf(api.ProvisioningGroup, "jobs")
		for n := range 12_000 {
			data := []byte(fmt.Sprintf(`{"metadata":{"name":"j%d","resourceVersion":"%d"},"spec":{"text":%q}}`, n, n, bytes.Repeat([]byte("x"), 700)))
			s.publish([]state.ObjectEvent{{Type: added, Object: state.Object{Key: objectKey(k, "default", "j"), Revision: s.seen() + 1, Data: data}}})
		}
		f := s.feeds[resourceName(k)]
		if events, size := f.held(); events != defaultWindow || size > 1<<20 {
			t.Errorf("%d events of %d bytes are held", events, size)
		}
		last := s.seen()
		<-time.After(feedAge + 2*time.Minute)
		synctest.Wait()
		if events, size := f.held(); events != 0 || size != 0 || f.oldest() != last {
			t.Errorf("%d events of %d bytes are held after their age", events, size)
		}
		if _, _, ok := f.after(last); !ok {
			t.Error("a watch that is up to date has fallen behind by time alone")
		}
	})
}
