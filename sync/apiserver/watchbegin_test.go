package apiserver

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

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
