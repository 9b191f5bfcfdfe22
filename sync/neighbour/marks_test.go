package neighbour

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func decoded(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestWriter: who wrote a mark last is told from who wrote anything else.
func TestWriter(t *testing.T) {
	entry := func(manager, at, fields string) string {
		return `{"manager":"` + manager + `","operation":"Update","subresource":"status","time":"2026-03-02T10:` + at + `Z","fieldsType":"FieldsV1","fieldsV1":` + fields + `}`
	}
	health := `{"f:status":{"f:health":{".":{},"f:checked":{},"f:healthy":{}}}}`
	for name, c := range map[string]struct {
		entries string
		who     hand
		manager string
		at      string
	}{
		"no entries":               {who: untold},
		"nobody has it":            {entries: entry("grafana", "00:00", `{"f:status":{"f:sync":{"f:state":{}}}}`)},
		"grafana":                  {entries: entry("grafana", "00:00", health), who: foreign, manager: "grafana", at: "00:00"},
		"the whole status":         {entries: entry("grafana", "00:00", `{"f:status":{}}`), who: foreign, manager: "grafana", at: "00:00"},
		"the parent alone":         {entries: entry("grafana", "00:00", `{"f:status":{"f:health":{".":{},"f:error":{}}}}`)},
		"limpet, grafana the rest": {entries: entry("grafana", "01:00", `{"f:status":{"f:sync":{}}}`) + "," + entry("limpet", "00:00", health), who: own, manager: "limpet", at: "00:00"},
		"both the same":            {entries: entry("limpet", "00:00", health) + "," + entry("grafana", "01:00", health), who: own, manager: "limpet", at: "00:00"},
		"kubectl":                  {entries: entry("kubectl-edit", "00:00", health), manager: "kubectl-edit", at: "00:00"},
		"a browser":                {entries: entry("Mozilla", "00:00", health), manager: "Mozilla", at: "00:00"},
		"no name":                  {entries: entry("", "00:00", health), at: "00:00"},
		"damaged":                  {entries: `7,{"manager":"grafana","fieldsV1":"x"}`},
	} {
		u := decoded(t, `{"metadata":{"managedFields":[`+c.entries+`]}}`)
		who, manager, at := writer(u, marks[checked].path)
		if got := at.Format("04:05"); who != c.who || manager != c.manager || c.at != "" && got != c.at {
			t.Errorf("%s: %v %q %s", name, who, manager, at)
		}
	}
}

func TestValues(t *testing.T) {
	u := decoded(t, `{"status":{"observedGeneration":2,"health":{"checked":1772445600000},"webhook":null,"token":"x"}}`)
	if got := valuesOf(u); got != (values{1772445600000, 2, 0, 0}) {
		t.Error(got)
	}
}

// TestDecide goes through the cases of what follows from what is known.
func TestDecide(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	long := ago(time.Hour)
	for name, c := range map[string]struct {
		f     facts
		phase Phase
		until time.Time
	}{
		"just begun, old objects":                {f: facts{blind: now, first: long}, phase: Waiting, until: now.Add(grace)},
		"no objects":                             {f: facts{blind: long}, phase: Waiting},
		"a new object":                           {f: facts{blind: long, first: ago(time.Minute)}, phase: Waiting, until: now.Add(grace - time.Minute)},
		"an object that has waited":              {f: facts{blind: long, first: ago(grace)}, phase: Active},
		"an API that was not to be seen":         {f: facts{blind: ago(time.Minute), first: long}, phase: Waiting, until: now.Add(grace - time.Minute)},
		"limpet did before the restart":          {f: facts{blind: now, first: long, own: ago(silence - 1)}, phase: Active},
		"limpet did long ago":                    {f: facts{blind: now, first: long, own: ago(silence)}, phase: Waiting, until: now.Add(grace)},
		"a stranger lately":                      {f: facts{blind: now, first: long, own: now, foreign: ago(time.Minute)}, phase: Passive, until: now.Add(silence)},
		"a stranger lately, seen all along":      {f: facts{blind: long, first: long, foreign: ago(time.Minute)}, phase: Passive, until: now.Add(silence - time.Minute)},
		"a stranger writes while active":         {f: facts{phase: Active, blind: long, first: long, foreign: now}, phase: Passive, until: now.Add(silence)},
		"active, the stranger was long ago":      {f: facts{phase: Active, blind: long, first: long, foreign: ago(silence)}, phase: Active},
		"active, the API was not to be seen":     {f: facts{phase: Active, blind: now, first: long}, phase: Active},
		"active, no objects":                     {f: facts{phase: Active, blind: long}, phase: Active},
		"passive, silent":                        {f: facts{phase: Passive, blind: long, first: long, foreign: ago(silence)}, phase: Active},
		"passive, silent while nobody could see": {f: facts{phase: Passive, blind: ago(time.Minute), first: long, foreign: long}, phase: Passive, until: now.Add(silence - time.Minute)},
		"passive, silent, no objects":            {f: facts{phase: Passive, blind: long, foreign: long}, phase: Waiting},
		"then a new object":                      {f: facts{blind: long, foreign: long, first: now}, phase: Waiting, until: now.Add(grace)},
		"begun, a stranger long ago":             {f: facts{blind: now, first: long, foreign: ago(silence)}, phase: Waiting, until: now.Add(grace)},
	} {
		c.f.now, c.f.grace, c.f.silence = now, grace, silence
		phase, until, why := decide(c.f)
		if phase != c.phase || !until.Equal(c.until) || (why != "") != (phase == Active && c.f.phase != Active) {
			t.Errorf("%s: %s until %s because %q", name, phase, until, why)
		}
	}
}
