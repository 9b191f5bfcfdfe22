package kube

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
)

// RequestKind is what requests are counted by, as client-go counts its own.
type RequestKind struct{ Code, Method, Host string }

// requests counts what was sent.
type requests struct {
	mu     sync.Mutex // guards counts
	counts map[RequestKind]int64
}

func (r *requests) add(req *http.Request, resp *http.Response) {
	kind := RequestKind{Code: "<error>", Method: req.Method, Host: req.URL.Host}
	if resp != nil {
		kind.Code = strconv.Itoa(resp.StatusCode)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[RequestKind]int64{}
	}
	r.counts[kind]++
}

// Requests returns how many requests were sent by what became of them, those of lease clients
// included.
func (c *Client) Requests() map[RequestKind]int64 {
	r := &c.shared.requests
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}
