package apiserver

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"limpet/state"
	"limpet/sync/api"
)

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
