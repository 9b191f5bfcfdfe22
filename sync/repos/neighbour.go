package repos

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Neighbour knows whether another program looks after the objects of the API.
// *neighbour.Watch is one.
type Neighbour interface {
	// Active says that this agent is to look after them. While it is not, nothing is
	// written and nobody is asked.
	Active() bool
	// Late is by how much the checks come after their time, so that another one that
	// comes back is the first to make them.
	Late() time.Duration
	// Writes is told of a check before it is sent.
	Writes(kind, namespace, name string, checked int64)
}

// late is by how much checks come after their time.
func late(n Neighbour) time.Duration {
	if n == nil {
		return 0
	}
	return n.Late()
}

// idle says that another one is at work.
func idle(n Neighbour) bool { return n != nil && !n.Active() }

// polite is a server to which nothing is sent any more once a neighbour has written,
// also in the midst of a look.
type polite struct {
	server
	neighbour Neighbour
	kind      string
}

func politely(s server, n Neighbour, kind string) server {
	if n == nil {
		return s
	}
	return polite{s, n, kind}
}

var errNeighbour = fmt.Errorf("%w: another controller has come", errMoved)

func (p polite) patch(ctx context.Context, k Key, status bool, ops []op) (*unstructured.Unstructured, error) {
	if idle(p.neighbour) {
		return nil, errNeighbour
	}
	for _, o := range ops {
		if h, is := o.Value.(map[string]any); is && o.Path == "/status/health" {
			if checked, is := h["checked"].(int64); is {
				p.neighbour.Writes(p.kind, k.Namespace, k.Name, checked)
			}
		}
	}
	return p.server.patch(ctx, k, status, ops)
}

func (p polite) pull(ctx context.Context, k Key, incremental bool) error {
	if idle(p.neighbour) {
		return errNeighbour
	}
	return p.server.pull(ctx, k, incremental)
}

func (p polite) dropJob(ctx context.Context, job *unstructured.Unstructured) error {
	if idle(p.neighbour) {
		return errNeighbour
	}
	return p.server.dropJob(ctx, job)
}
