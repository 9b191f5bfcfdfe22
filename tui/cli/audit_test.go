package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv"
)

// TestAudit: the oracle of the tests with several agents sees what it is there
// for.
func TestAudit(t *testing.T) {
	const base = "/apis/provisioning.grafana.app/v0alpha1/namespaces/default/"
	version := int64(0)
	put := func(user, token string, claimed, at int64) testenv.Request {
		version++
		labels := "{}"
		if token != "" {
			labels = fmt.Sprintf(`{"provisioning.grafana.app/claim-owner":%q,"provisioning.grafana.app/claim":"%d"}`, token, claimed)
		}
		return testenv.Request{Method: "PUT", Path: base + "jobs/j", Code: 200, User: user, UID: "u", Version: version, At: at,
			Body: []byte(`{"metadata":{"uid":"u","labels":` + labels + `}}`)}
	}
	post := func(user string) testenv.Request {
		version++
		return testenv.Request{Method: "POST", Path: base + "historicjobs", Code: 201, User: user, UID: "h", Version: version, At: 9,
			Body: []byte(`{"metadata":{"labels":{"provisioning.grafana.app/original-uid":"u"}}}`)}
	}
	remove := func(user string) testenv.Request {
		return testenv.Request{Method: "DELETE", Path: base + "jobs/j", Code: 200, User: user, At: 10, Body: []byte(`{"preconditions":{"uid":"u"}}`)}
	}
	half := func(r testenv.Request) testenv.Request {
		r.Code = 504
		return r
	}
	const one, two = "agent-1", "agent-2"
	for _, c := range []struct {
		name  string
		log   []testenv.Request
		wrong string // part of what it finds; "" = nothing
	}{
		{"claimed, renewed, done", []testenv.Request{put(one, "A", 1, 1), put(one, "A", 5, 5), post(one), remove(one)}, ""},
		{"given back and taken", []testenv.Request{put(one, "A", 1, 1), put(one, "", 0, 2), put(two, "B", 3, 3), post(two), remove(two)}, ""},
		{"taken from the dead", []testenv.Request{put(one, "A", 1, 1), put(two, "", 0, 2000), put(two, "B", 2001, 2001), post(two), remove(two)}, ""},
		{"taken from the living", []testenv.Request{put(one, "A", 1, 1), put(two, "B", 2, 2), post(two), remove(two)}, "claimed job u, which agent-1 has had"},
		{"given back, nobody knows, and taken", []testenv.Request{put(one, "A", 1, 1), half(put(one, "", 0, 2)), put(two, "B", 3, 3), post(two), remove(two)}, ""},
		{"given back for another", []testenv.Request{put(one, "A", 1, 1), put(two, "", 0, 2), put(one, "C", 3, 3), post(one), remove(one)}, "gave back job u"},
		{"renewed after it was taken", []testenv.Request{put(one, "A", 1, 1), put(two, "", 0, 2000), put(two, "B", 2001, 2001), put(one, "A", 2002, 2002)}, "agent-1 claimed job u, which agent-2 has had"},
		{"archived by a loser", []testenv.Request{put(one, "A", 1, 1), put(one, "", 0, 2), put(two, "B", 3, 3), post(one), remove(two)}, "made the HistoricJob"},
		{"deleted by a loser", []testenv.Request{put(one, "A", 1, 1), post(one), remove(two)}, "deleted job u"},
		{"written after the end", []testenv.Request{put(one, "A", 1, 1), post(one), remove(one), remove(one)}, "after its end"},
	} {
		a := auditOf(t, c.log, time.Second)
		if got := strings.Join(a.wrong, "\n"); (c.wrong == "") != (got == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.wrong)
		}
	}
}
