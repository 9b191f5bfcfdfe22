package testenv

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience bounds requests that are meant to hang.
const patience = 700 * time.Millisecond

func TestFaults(t *testing.T) {
	s := Real(t)
	defer s.Break(t)
	defer s.ShiftClock(t, 0)
	c := s.Client(t)
	c.Timeout = patience
	folder := func(name string) string {
		return `{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"` + name + `"},"spec":{"title":"A"}}`
	}
	try := func(user, method, url, body string) (*http.Response, error) {
		req := request(t, method, url, body)
		req.Header.Set("Authorization", "Bearer "+s.TokenOf(user))
		resp, err := c.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return resp, err
	}
	code := func(user, method, path, body string) int {
		t.Helper()
		resp, err := try(user, method, s.URL+path, body)
		if err != nil {
			return 0
		}
		return resp.StatusCode
	}
	post(t, s.Client(t), s.URL+folders, folder("first"), 201) // the first one takes its time

	s.Break(t, Fault{User: "a", Status: 503, RetryAfter: "7"}, Fault{Method: "POST", Mute: true})
	if resp, err := try("a", "GET", s.URL+folders, ""); err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "7" {
		t.Errorf("a status: %v %v", resp, err)
	}
	if got := code("b", "GET", folders, ""); got != 200 {
		t.Errorf("somebody else's request: %d", got)
	}
	mark := s.Mark(t)
	if got := code("b", "POST", folders, folder("mute")); got != 0 {
		t.Errorf("a lost answer: %d", got)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(20 * time.Second); code("b", "GET", folders+"/mute", "") != 200; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("what the API did without an answer is not there")
		}
	}
	if w := s.Writes(t, mark); len(w) != 1 || w[0].User != "b" || w[0].UID == "" || w[0].Version == 0 || w[0].Code != 201 {
		t.Errorf("writes: %+v", w)
	}
	s.Break(t, Fault{Path: "/folders", Hang: true})
	mark = s.Mark(t)
	if got := code("b", "POST", folders, folder("hang")); got != 0 {
		t.Errorf("a request that hangs: %d", got)
	}
	s.Break(t, Fault{Delay: 2 * patience})
	if got := code("b", "GET", folders, ""); got != 0 {
		t.Errorf("a request that is late: %d", got)
	}
	s.Break(t)
	if got := code("b", "GET", folders+"/hang", ""); got != 404 || len(s.Writes(t, mark)) != 0 {
		t.Errorf("a request that hung has come through: %d %v", got, s.Writes(t, mark))
	}
	s.HideClock(t)
	if resp, err := try("b", "GET", s.URL+folders, ""); err != nil || resp.Header.Get("Date") != "" {
		t.Errorf("a hidden clock: %v %v", resp, err)
	}
	s.ShiftClock(t, -time.Hour)
	resp, err := try("b", "GET", s.URL+folders, "")
	if err != nil {
		t.Fatal(err)
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if ahead := time.Until(date); err != nil || ahead > -59*time.Minute || ahead < -61*time.Minute {
		t.Errorf("the date is ahead by %v (%v)", ahead, err)
	}
}

func TestProxy(t *testing.T) {
	s := Real(t)
	p := s.Proxy(t, "p", s.URL)
	try := func() error {
		c := s.Client(t)
		c.Timeout = patience
		resp, err := c.Do(request(t, "GET", p.URL+folders, ""))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return err
	}
	good := func(when string) {
		t.Helper()
		if err := try(); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	timedOut := func(err error) bool {
		var ne net.Error
		return errors.As(err, &ne) && ne.Timeout()
	}
	good("a new way")
	for _, c := range []struct {
		name   string
		toxic  Toxic
		broken func(error) bool
	}{
		{"latency", Latency(patience, 0), timedOut},
		{"silence", Silence(), timedOut},
		{"bandwidth", Bandwidth(1), timedOut},
		{"reset", ResetPeer(0), func(err error) bool { return strings.Contains(err.Error(), "reset") }},
		{"limit", LimitData(100), func(err error) bool { return err != nil && !timedOut(err) }},
		{"slicer", Slicer(4, 100*time.Millisecond), timedOut},
	} {
		p.Set(t, c.toxic)
		if err := try(); err == nil || !c.broken(err) {
			t.Errorf("%s: %v", c.name, err)
		}
		p.Set(t)
		good("after " + c.name)
	}
	p.Down(t)
	if err := try(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("down: %v", err)
	}
	p.Set(t)
	good("after down")
}

// TestCompact: a version that was forgotten is expired for watches too.
func TestCompact(t *testing.T) {
	s := Start(t, Options{NoWatchCache: true})
	c := s.Client(t)
	post(t, c, s.URL+folders, `{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"a"},"spec":{"title":"A"}}`, 201)
	version := between(get(t, c, s.URL+folders+"/a", 200), `"resourceVersion":"`, `"`)
	for _, name := range []string{"b", "c"} { // the newest version survives a compaction
		post(t, c, s.URL+folders, `{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":"`+name+`"},"spec":{"title":"B"}}`,
			201)
	}
	watch := s.URL + folders + "?watch=true&timeoutSeconds=1&resourceVersion=" + version
	if got := get(t, c, watch, 200); !strings.Contains(got, `"type":"ADDED"`) {
		t.Fatalf("before: %s", got)
	}
	s.Compact(t)
	if code, got := send(t, c.Transport, request(t, "GET", watch, "")); !strings.Contains(got, `"code":410`) {
		t.Fatalf("after: %d %s", code, got)
	}
}
