package apiserver

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/api"
)

// A request does not wait for ever for a version that does not come.
func TestWatchOfTheFuture(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		for _, query := range []string{"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "resourceVersionMatch=NotOlderThan",
			""} {
			began := time.Now()
			code, status := s.call("GET", folderPath+"?resourceVersion=99999999999999999&"+query, "")
			if code != http.StatusGatewayTimeout || at(status, "details", "causes") == nil || time.Since(began) != freshTimeout {
				t.Errorf("%s: %d %v after %s", query, code, status, time.Since(began))
			}
		}
	})
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

// changes publishes n changes of a folder after the revision that is reached.
func changes(f *feed, n, size int) {
	for range n {
		f.publish([]state.ObjectEvent{{Type: modified, Object: state.Object{
			Key:      state.ObjectKey{Resource: folderResource, Namespace: "default", Name: "a"},
			Revision: f.seen() + 1,
			Data:     bytes.Repeat([]byte("x"), size),
		}}})
	}
}

const folderResource = api.FolderGroup + "/folders"

func TestFeedWindow(t *testing.T) {
	t.Parallel()
	f := newFeed(3, 10)
	changes(f, 5, 10)
	for after, want := range map[uint64]int{9: -1, 11: -1, 12: 3, 13: 2, 15: 0, 20: 0} {
		events, reached, _, err := f.next(folderResource, after)
		if (err != nil) != (want < 0) || err != nil && !apierrors.IsResourceExpired(err) || err == nil && (len(events) != want || reached != 15) {
			t.Errorf("after %d: %d events up to %d, %v; want %d", after, len(events), reached, err, want)
		}
	}
	if events, err := f.between(t.Context(), folderResource, 12, 14); err != nil || len(events) != 2 || events[1].Object.Revision != 14 {
		t.Errorf("12 to 14: %v %v", events, err)
	}
	if _, err := f.between(t.Context(), folderResource, 11, 14); err == nil {
		t.Error("11 to 14 is answered")
	}
}

func TestFeedBytes(t *testing.T) {
	t.Parallel()
	f := newFeed(1000, 0)
	w := f.resources[folderResource]
	for range 100 {
		if changes(f, 1, feedBytes/10); w.bytes > feedBytes {
			t.Fatalf("%d bytes are held", w.bytes)
		}
	}
	if got := len(w.events); got != 9 {
		t.Errorf("%d events are held, want 9", got)
	}
	// One that is larger than the whole window stays until the next comes, so
	// that watches that are up to date see it.
	changes(f, 1, 2*feedBytes)
	if events, _, _, err := f.next(folderResource, 100); err != nil || len(events) != 1 {
		t.Errorf("the large event is lost: %v", err)
	}
	changes(f, 1, 10)
	if _, _, _, err := f.next(folderResource, 100); err == nil || w.bytes > 200 {
		t.Errorf("the large event is still held: %d bytes", w.bytes)
	}
}

func TestFeedBatches(t *testing.T) {
	t.Parallel()
	f := newFeed(1000, 0)
	changes(f, 600, 1)
	position, batches := uint64(0), 0
	for position < 600 {
		events, _, _, err := f.next(folderResource, position)
		if err != nil || len(events) == 0 || len(events) > feedBatch {
			t.Fatalf("%d events at once: %v", len(events), err)
		}
		position = events[len(events)-1].Object.Revision
		batches++
	}
	if all, err := f.between(t.Context(), folderResource, 0, 600); err != nil || len(all) != 600 || batches != 3 {
		t.Errorf("%d events, %d batches: %v", len(all), batches, err)
	}
}

// A burst leaves no more behind than the window.
func TestFeedForgets(t *testing.T) {
	t.Parallel()
	f := newFeed(0, 0)
	changes(f, 12_000, 700)
	if w := f.resources[folderResource]; len(w.events) != defaultWindow || w.bytes > 1<<20 {
		t.Errorf("%d events of %d bytes are held", len(w.events), w.bytes)
	}
}
