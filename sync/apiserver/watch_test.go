package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
			if code != http.StatusGatewayTimeout || at(status, "details", "causes") == nil || time.Since(began) != freshWithin {
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
		if since := time.Since(began); since != bookmarkEvery {
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
		if since := time.Since(began); since < watchAtLeast || since > 2*watchAtLeast {
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
