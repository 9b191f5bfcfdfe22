package cli_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestClaimLatency measures from before the POST of a job until a watch of a
// third party shows the claim: the way of the event to the agent, its look at
// the job, its claim, and the way of that event. The agent is idle each time.
// In turn with it the same is measured for the least that anybody can do: a
// client that writes the claim as soon as its watch shows the job.
func TestClaimLatency(t *testing.T) {
	const half, most = 20 * time.Millisecond, 150 * time.Millisecond
	measure := func(t *testing.T, y *yard) {
		y.repositories(8)
		s := y.look()
		y.claimBare()
		once := func(u *unstructured.Unstructured) time.Duration {
			began := time.Now()
			if _, err := y.jobs().Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			y.await("job claimed", s.claimed, 1)
			return time.Since(began)
		}
		var limpet, bare []time.Duration
		n := size(20, 600)
		const warm = 10
		for i := range warm + n {
			a := once(y.job())
			y.await("job ended", s.gone, 1)
			u := y.job()
			_ = unstructured.SetNestedField(u.Object, bareAction, "spec", "action")
			b := once(u)
			if err := y.jobs().Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			y.await("job deleted", s.gone, 1)
			if i >= warm {
				limpet, bare = append(limpet, a), append(bare, b)
			}
		}
		tell := func(v []time.Duration) string {
			return fmt.Sprintf("p50 %s, p90 %s, p99 %s, most %s", ms(median(v)), ms(quantile(v, 0.9)), ms(quantile(v, 0.99)), ms(slices.Max(v)))
		}
		t.Logf("POST to claim seen by a watch, n=%d in turn: limpet %s; bare %s", n, tell(limpet), tell(bare))
		// A machine that is busy with other things shows it in the bare calls too.
		goal50, goal99 := max(half, 2*median(bare)), max(most, 2*quantile(bare, 0.99))
		if *figures && (median(limpet) > goal50 || quantile(limpet, 0.99) > goal99) {
			t.Errorf("p50 %s, goal %s; p99 %s, goal %s", ms(median(limpet)), ms(goal50), ms(quantile(limpet, 0.99)), ms(goal99))
		}
	}
	t.Run("API machinery", func(t *testing.T) {
		y, flags := realYard(t, testenv.Start(t, testenv.Options{}))
		newHome(t, flags...).daemon(t, "--log-level", "warn")
		measure(t, y)
	})
	t.Run("embedded", func(t *testing.T) {
		h := newHome(t)
		h.daemon(t, "--log-level", "warn")
		measure(t, embeddedYard(t, h))
	})
}

// bareAction is one that limpet has no worker for.
const bareAction = "fixFolderMetadata"

// claimBare claims the jobs of bareAction as soon as a watch shows them, until
// the test ends.
func (y *yard) claimBare() {
	y.t.Helper()
	inf := y.client.Informer(api.Jobs, "default", api.InformerOptions{})
	inf.OnEvent(api.Handler{Add: func(u *unstructured.Unstructured) {
		if action, _, _ := unstructured.NestedString(u.Object, "spec", "action"); action != bareAction {
			return
		}
		u = u.DeepCopy()
		labels := u.GetLabels()
		labels[api.LabelClaim], labels[api.LabelClaimOwner] = fmt.Sprint(time.Now().UnixMilli()), "bare"
		u.SetLabels(labels)
		if _, err := y.jobs().Update(context.Background(), u, metav1.UpdateOptions{}); err != nil {
			y.t.Error(err)
		}
	}})
	y.run(inf)
}

func ms(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// TestIdleAgentIsQuiet counts what an agent that waits for jobs asks of its
// server. Goal: at most one request in 30 s.
func TestIdleAgentIsQuiet(t *testing.T) {
	server := testenv.Start(t, testenv.Options{})
	y, flags := realYard(t, server)
	y.repositories(20)
	newHome(t, flags...).daemon(t, "--log-level", "warn")
	s := y.look()
	y.drain(s, 20, 1)
	// What belongs to the start is over once the first pass over expired claims
	// has been seen.
	until(t, "the agent has looked for expired claims", func() bool {
		return counted(server.Requests(t, 0))["LIST jobs"] > 0
	})
	since := server.Mark(t)
	watched := time.Duration(size(5, 240)) * time.Second
	<-time.After(watched)
	asked := counted(server.Requests(t, since))
	n := 0
	for _, times := range asked {
		n += times
	}
	t.Logf("an idle agent, %s: %d requests %v", watched, n, asked)
	if most := max(1, int(watched/(30*time.Second))); n > most {
		t.Errorf("%d requests in %s, at most %d are allowed: %v", n, watched, most, asked)
	}
}

// counted sums the requests of limpet agents up by kind: verb, resource, and the
// status when it is an error.
func counted(requests []testenv.Request) map[string]int {
	out := map[string]int{}
	for _, r := range requests {
		if strings.HasPrefix(r.Agent, "limpet") {
			out[kindOf(r)]++
		}
	}
	return out
}

// kindOf names a request as "GET jobs" or, without a name in the path, "LIST
// jobs", which is also a watch; errors have their status behind.
func kindOf(r testenv.Request) string {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	verb, resource := r.Method, parts[len(parts)-1]
	// apis GROUP VERSION [namespaces NS] RESOURCE [NAME [SUBRESOURCE]]
	at := 3
	if len(parts) > 4 && parts[3] == "namespaces" {
		at = 5
	}
	if len(parts) > at {
		resource = parts[at]
		if len(parts) == at+1 && verb == "GET" {
			verb = "LIST"
		}
	}
	kind := verb + " " + resource
	if len(parts) > at+2 {
		kind += "/" + parts[at+2]
	}
	if r.Code >= 400 {
		kind += " " + http.StatusText(r.Code)
	}
	return kind
}

// kinds lists what was counted, most first.
func kinds(asked map[string]int) []string {
	return slices.SortedFunc(maps.Keys(asked), func(a, b string) int { return asked[b] - asked[a] })
}
