package testenv

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestWritesHaveWhatWasSeen: whoever sees what a write has done, be it before the
// writer has its answer, finds the write among Writes.
func TestWritesHaveWhatWasSeen(t *testing.T) {
	const writers, each = 30, 20
	s := Real(t)
	c := s.Client(t)
	space := strings.Replace(folders, "default", strings.ToLower(rand.Text()), 1)
	since := s.Mark(t)
	watched := make(chan struct{})
	begin := sync.OnceFunc(func() { close(watched) })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer begin()
	for writer := range writers {
		wg.Go(func() {
			<-watched
			for i := range each {
				body := fmt.Sprintf(`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"f%d-%d"},"spec":{"title":"A"}}`, writer,
					i)
				resp, err := c.Do(request(t, http.MethodPost, s.URL+space, body))
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			}
		})
	}
	seen, version := 0, ""
	for seen < writers*each {
		// The server ends watches when it makes the store of a new kind anew.
		resp, err := c.Do(request(t, http.MethodGet, s.URL+space+"?watch=true&resourceVersion="+version, ""))
		if err != nil {
			t.Fatal(err)
		}
		begin()
		for events := bufio.NewReader(resp.Body); seen < writers*each; seen++ {
			line, err := events.ReadString('\n')
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			version = between(line, `"resourceVersion":"`, `"`)
			uid := between(line, `"uid":"`, `"`)
			if !slices.ContainsFunc(s.Writes(t, since), func(r Request) bool { return r.UID == uid }) {
				t.Fatalf("the write behind event %d is not there: %s", seen, line)
			}
		}
		resp.Body.Close()
	}
}

// TestStuckBodyHoldsNobody: a write whose body does not come is waited for by its
// own client alone.
func TestStuckBodyHoldsNobody(t *testing.T) {
	s := Start(t, Options{}) // whose log has that write at some later time
	body, feed := io.Pipe()
	req := request(t, http.MethodPost, s.URL+folders, "")
	req.Body, req.ContentLength = body, 1000
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := s.Client(t).Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	if _, err := io.WriteString(feed, "{"); err != nil { // it has been taken by the client, and is on its way
		t.Fatal(err)
	}
	since := s.Mark(t)
	post(t, s.Client(t), s.URL+folders,
		`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"generateName":"beside-"},"spec":{"title":"A"}}`, http.StatusCreated)
	if n := len(s.Writes(t, since)); n != 1 {
		t.Errorf("%d writes beside one whose body is stuck", n)
	}
	feed.CloseWithError(io.ErrUnexpectedEOF)
	<-done
}
