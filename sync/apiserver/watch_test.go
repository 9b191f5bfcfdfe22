package apiserver

import (
	"bytes"
	"fmt"
	"net/http"
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

// A client that does not read holds one event and no more, and learns that it has fallen behind.
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

// changes publishes n changes of a folder after the revision that is reached.
func changes(f *feed, n, size int) {
	for range n {
		f.publish([]state.ObjectEvent{{Type: state.EventModified, Object: state.Object{
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
}

// TestFeedWakes: a watch sleeps through the changes of other resources.
func TestFeedWakes(t *testing.T) {
	t.Parallel()
	f := newFeed(3, 10)
	_, _, folders, _ := f.next(folderResource, 10)
	_, _, others, _ := f.next(api.DashboardGroup+"/dashboards", 10)
	woken := func(moved <-chan struct{}) bool {
		select {
		case <-moved:
			return true
		default:
			return false
		}
	}
	if changes(f, 1, 10); !woken(folders) || woken(others) {
		t.Error("the change of a folder wakes the wrong watches")
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
