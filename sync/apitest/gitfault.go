package apitest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// FaultKind is a way in which a Git host fails.
type FaultKind int

// The ways. Those of a pack let the real answer through up to Fault.After bytes.
const (
	Stall       FaultKind = iota + 1 // takes the request and never answers
	Status                           // answers Fault.Code, with Retry-After when given
	Portal                           // answers 200 with the HTML page of a captive portal
	Redirect                         // sends the client to Fault.Location
	Reset                            // closes the connection without an answer
	StallPack                        // pack: stops sending, keeps the connection
	Truncate                         // pack: closes the connection
	TruncateEnd                      // pack: ends the answer as if it were whole
	Flip                             // pack: inverts one byte
)

// Fault is what the server does instead of, or to, its answers.
type Fault struct {
	Kind       FaultKind
	Service    string // info/refs or git-upload-pack; "" = all
	Times      int    // requests that it strikes; 0 = all until Mend
	After      int64  // bytes of a pack answer that are right
	Code       int    // of Status
	RetryAfter time.Duration
	Location   string // of Redirect: the path and query of the request are added
}

// Break lets the server fail from now on; a later Break replaces it.
func (g *GitServer) Break(f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = &f
}

// Mend ends the fault. Requests that hang keep hanging.
func (g *GitServer) Mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = nil
}

// takeFault returns the fault that strikes a request of the service. The caller
// holds g.mu.
func (g *GitServer) takeFault(service string) *Fault {
	f := g.fault
	if f == nil || f.Service != "" && f.Service != service || f.pack() && service != "git-upload-pack" {
		return nil
	}
	struck := *f
	if f.Times > 0 {
		if f.Times--; f.Times == 0 {
			g.fault = nil
		}
	}
	return &struck
}

// pack says whether the fault is one of an answer that began well.
func (f *Fault) pack() bool { return f.Kind >= StallPack }

// answer sends what the fault puts in the place of an answer.
func (f *Fault) answer(w http.ResponseWriter, r *http.Request, done <-chan struct{}) {
	switch f.Kind {
	case Stall:
		select {
		case <-r.Context().Done():
		case <-done:
		}
	case Status:
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter/time.Second)))
		}
		http.Error(w, http.StatusText(f.Code), f.Code)
	case Portal:
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!DOCTYPE html><html><body><h1>Welcome to the harbour Wi-Fi</h1></body></html>\n")
	case Redirect:
		http.Redirect(w, r, f.Location+r.URL.RequestURI(), http.StatusFound)
	case Reset:
		panic(http.ErrAbortHandler)
	}
}

// meter counts what an answer sends, and spoils it as the fault says.
type meter struct {
	http.ResponseWriter
	entry *GitRequest
	fault *Fault
	hang  <-chan struct{} // ends a stalled answer: server closed
	gone  <-chan struct{} // ends a stalled answer: client gone
}

func (m *meter) WriteHeader(code int) {
	m.entry.code.Store(int64(code))
	if m.fault != nil {
		m.Header().Del("Content-Length")
	}
	m.ResponseWriter.WriteHeader(code)
}

func (m *meter) Write(p []byte) (int, error) {
	m.entry.code.CompareAndSwap(0, http.StatusOK)
	whole := len(p)
	sent := m.entry.sent.Load()
	if m.fault != nil && sent+int64(len(p)) > m.fault.After {
		keep := max(m.fault.After-sent, 0)
		if m.fault.Kind == Flip {
			if sent <= m.fault.After {
				p = bytes.Clone(p)
				p[keep] = ^p[keep]
			}
			return m.send(p, whole)
		}
		if _, err := m.send(p[:keep], whole); err != nil {
			return 0, err
		}
		switch m.fault.Kind {
		case TruncateEnd:
			return whole, nil // the rest is swallowed
		case StallPack:
			m.flush()
			select {
			case <-m.hang:
			case <-m.gone:
			}
		}
		m.flush()
		panic(http.ErrAbortHandler)
	}
	return m.send(p, whole)
}

func (m *meter) send(p []byte, whole int) (int, error) {
	m.entry.sent.Add(int64(len(p)))
	if _, err := m.ResponseWriter.Write(p); err != nil {
		return 0, err
	}
	return whole, nil
}

func (m *meter) flush() {
	if f, ok := m.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// maxBody bounds a body that has no length.
const maxBody = 64 << 20

// spool reads the body into memory, so that its length is known.
func spool(r *http.Request) error {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	if len(data) > maxBody {
		return fmt.Errorf("body of more than %d bytes", maxBody)
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
	return nil
}
