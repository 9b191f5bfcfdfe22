package testenv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// Fault is what happens to the requests that it matches: those of whom it says
// nothing against. Exactly one of Status, Delay, Hang and Mute is set.
type Fault struct {
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`  // part of the path
	Agent  string `json:"agent,omitempty"` // part of the User-Agent
	User   string `json:"user,omitempty"`  // see Server.TokenOf
	Watch  *bool  `json:"watch,omitempty"` // nil = watches and other requests

	Status     int           `json:"status,omitempty"`     // is the answer; the API does not see the request
	RetryAfter string        `json:"retryAfter,omitempty"` // header that goes with Status
	Delay      time.Duration `json:"-"`                    // the API sees the request so much later
	Hang       bool          `json:"hang,omitempty"`       // nobody answers, the API does not see the request
	Mute       bool          `json:"mute,omitempty"`       // the API does what is asked, its answer is lost
}

// MarshalJSON writes the delay as the server reads it.
func (f Fault) MarshalJSON() ([]byte, error) {
	type plain Fault
	out := struct {
		plain
		Delay string `json:"delay,omitempty"`
	}{plain: plain(f)}
	if f.Delay > 0 {
		out.Delay = f.Delay.String()
	}
	return json.Marshal(out)
}

// Break has requests go wrong from now on, the first fault that matches
// counting. It takes away what was broken before; without faults it mends all.
func (s *Server) Break(t testing.TB, faults ...Fault) {
	t.Helper()
	if faults == nil {
		faults = []Fault{}
	}
	s.control(t, http.MethodPut, "/faults", faults, nil)
}

// ShiftClock has the Date of every answer ahead of the true time.
func (s *Server) ShiftClock(t testing.TB, ahead time.Duration) {
	t.Helper()
	s.control(t, http.MethodPut, "/clock", ahead.String(), nil)
}

// HideClock has answers without a Date until ShiftClock.
func (s *Server) HideClock(t testing.TB) {
	t.Helper()
	s.control(t, http.MethodPut, "/clock", "", nil)
}

// Compact lets the server forget all versions but the newest: continue tokens
// of before are answered with 410, and with Options.NoWatchCache watches too.
func (s *Server) Compact(t testing.TB) {
	t.Helper()
	s.control(t, http.MethodPost, "/compact", struct{}{}, nil)
}

// Toxic is one thing that is wrong with a connection; the words are
// toxiproxy's. It works in both directions.
type Toxic struct {
	Type       string         `json:"type"`
	Attributes map[string]any `json:"attributes"`
}

// Latency delays all that comes through by d, give or take the jitter.
func Latency(d, jitter time.Duration) Toxic {
	return Toxic{"latency", map[string]any{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()}}
}

// Bandwidth lets so many KiB through in a second.
func Bandwidth(rate int) Toxic { return Toxic{"bandwidth", map[string]any{"rate": rate}} }

// Silence lets nothing through and closes nothing: a connection that is half
// open.
func Silence() Toxic { return Toxic{"timeout", map[string]any{"timeout": 0}} }

// ResetPeer cuts every connection with a TCP reset after d.
func ResetPeer(d time.Duration) Toxic {
	return Toxic{"reset_peer", map[string]any{"timeout": d.Milliseconds()}}
}

// LimitData closes every connection after so many bytes.
func LimitData(bytes int) Toxic { return Toxic{"limit_data", map[string]any{"bytes": bytes}} }

// Slicer cuts what comes through into small packets.
func Slicer(size int, delay time.Duration) Toxic {
	return Toxic{"slicer", map[string]any{"average_size": size, "size_variation": size / 2, "delay": delay.Microseconds()}}
}

// Proxy is a way to a server on which connections go wrong: toxiproxy.
type Proxy struct {
	URL string // instead of the server's own; the same path

	server         *Server
	name, upstream string
}

// Proxy makes a way to target, one of the URLs of the server. It lives as long
// as the server. The name tells it from the others of the server.
func (s *Server) Proxy(t testing.TB, name, target string) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{server: s, name: name, upstream: u.Host}
	u.Host = p.set(t, false, nil)
	p.URL = u.String()
	return p
}

// Set makes the way up and gives it these toxics instead of those of before:
// without any it is a good one. Silence that is taken away ends its connections.
func (p *Proxy) Set(t testing.TB, toxics ...Toxic) {
	t.Helper()
	p.set(t, false, toxics)
}

// Down cuts all connections, and new ones are refused until Set.
func (p *Proxy) Down(t testing.TB) {
	t.Helper()
	p.set(t, true, nil)
}

func (p *Proxy) set(t testing.TB, down bool, toxics []Toxic) (listen string) {
	t.Helper()
	type directed struct {
		Toxic
		Name   string `json:"name"`
		Stream string `json:"stream"`
	}
	want := map[string]any{"name": p.name, "upstream": p.upstream, "down": down}
	var both []directed
	for n, toxic := range toxics {
		for _, stream := range []string{"upstream", "downstream"} {
			both = append(both, directed{toxic, fmt.Sprintf("%d-%s", n, stream), stream})
		}
	}
	want["toxics"] = both
	var is struct{ Listen string }
	p.server.control(t, http.MethodPut, "/proxies", want, &is)
	return is.Listen
}

// control sends a command to the server and reads its answer into out, which
// may be nil.
func (s *Server) control(t testing.TB, method, path string, in, out any) {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, s.controlURL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s %s: %v %s", method, path, body, err, answer)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(answer, out); err != nil {
		t.Fatalf("%s %s: %v: %s", method, path, err, answer)
	}
}
