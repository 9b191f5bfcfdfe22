package jobs

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// nowhere is a network that is not there.
type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrServerClosed }

// TestAgentsOfOneName: hosts that have the same name do not take jobs in the
// same order, and their claims, which are labels, tell them apart.
func TestAgentsOfOneName(t *testing.T) {
	var orders [][]uint64
	var names []string
	for range 2 {
		c, err := kube.Connect(t.Context(), kube.Config{Transport: nowhere{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		informer := func() *kube.Informer { return c.Informer(api.Jobs, "", kube.InformerOptions{}) }
		k, err := New(c, informer(), informer(), nil, nil, Options{Agent: "host"})
		if err != nil {
			t.Fatal(err)
		}
		var order []uint64
		for i := range 20 {
			order = append(order, queue.Favour(k.env.o.self, repoKey("default", fmt.Sprint("repo-", i))))
		}
		token := tokenOf(k.env.o.self, machine{}.token())
		if bad := validation.IsValidLabelValue(token); len(bad) > 0 || agentOf(token) != k.env.o.self {
			t.Errorf("token %q of agent %q: %v", token, k.env.o.self, bad)
		}
		orders, names = append(orders, order), append(names, agentOf(token))
	}
	if slices.Equal(orders[0], orders[1]) || names[0] == names[1] {
		t.Errorf("two agents of one name favour the same repositories: %v, as %q", orders[0], names)
	}
}
