package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	client, err := kube.Connect(t.Context(), kube.Config{Server: "http://model", Transport: &forgets{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	push := &script{action: "push"}
	cases := []struct {
		name    string
		o       Options
		workers []Worker
		text    string
	}{
		{"unsafe lease", Options{Expiry: time.Minute, Renew: time.Minute}, []Worker{quick()}, "at least 3 times"},
		{"two workers for one action", Options{}, []Worker{quick(), quick()}, `two workers for action "pull"`},
		{"an action without a worker", Options{Actions: []string{"pull", "psuh"}}, []Worker{quick(), push}, `no worker for action "psuh"`},
	}
	for _, c := range cases {
		jobs, repos := client.Informer(api.Jobs, "", kube.InformerOptions{}), client.Informer(api.Repositories, "", kube.InformerOptions{})
		if _, err := New(client, jobs, repos, nil, c.workers, c.o); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// forgets is a server whose list has two pages and forgets the second one so many times.
type forgets struct{ times int }

func (f *forgets) RoundTrip(req *http.Request) (*http.Response, error) {
	code, body := 200, `{"kind":"List","apiVersion":"v1","metadata":{"continue":"p2"},"items":[{"metadata":{"name":"a"}}]}`
	switch {
	case req.URL.Query().Get("limit") != strconv.Itoa(pageSize):
		code = 400
	case req.URL.Query().Get("continue") != "p2":
	case f.times > 0:
		f.times--
		code, body = 410, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`
	default:
		body = `{"kind":"List","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"b"}}]}`
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: io.NopCloser(strings.NewReader(body))}, nil
}

// TestListBeginsAgain: a list that the server forgets between two pages begins again, once.
func TestListBeginsAgain(t *testing.T) {
	t.Parallel()
	for times, want := range []string{"[a b] <nil>", "[a a b] <nil>", "[a a]"} {
		client, err := kube.Connect(t.Context(), kube.Config{Server: "http://model", Transport: &forgets{times}, Logger: simLog})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		var names []string
		err = apiServer{client, time.Second}.list(t.Context(), api.HistoricJobs, "", "", func(u *unstructured.Unstructured) error {
			names = append(names, u.GetName())
			return nil
		})
		if got := fmt.Sprint(names, " ", err); !strings.HasPrefix(got, want) || (times == 2) != apierrors.IsResourceExpired(err) {
			t.Errorf("forgotten %d times: %s, want %s", times, got, want)
		}
	}
}

// TestStateFileIsRebuiltUnderUs: it was found damaged, set aside, and the claim of the running job
// is not in the new one.
func TestStateFileIsRebuiltUnderUs(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		uid := ""
		drop := func() {
			if err := r.store.DropClaim(context.Background(), uid); err != nil {
				t.Error(err)
			}
		}
		w := worker(func(ctx context.Context, task *Task) error {
			uid = task.UID
			drop()
			if err := task.Progress.Mark(ctx, 1); err != nil {
				t.Errorf("mark: %v", err)
			}
			if claims := r.claims(); len(claims) != 1 || len(claims[0].Mark) == 0 {
				t.Errorf("claims %+v", claims)
			}
			drop()
			return nil
		})
		r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		settle()
		r.done("success", "")
	})
}

// TestFullDiskTrimsHistory: old history goes before a new result is given up.
func TestFullDiskTrimsHistory(t *testing.T) {
	bubble(t, func(r *rig) {
		for i := range 100 {
			if err := r.store.PutRecord(context.Background(), state.Record{UID: fmt.Sprint("old-", i), Namespace: "default", Name: "old",
				Finished: time.Now().Add(-time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		r.repository("r1")
		a := r.start("a", Options{}, quick())
		settle()
		a.ledger.failing(func(op string) error {
			if n, err := r.store.HistoryCount(context.Background()); op == "complete" && err == nil && n > 95 {
				return syscall.ENOSPC
			}
			return nil
		})
		r.job("r1", "r1-sync")
		pass(time.Second)
		if n := len(r.history()); n != 91 || a.count(EventPruned) != 1 || len(r.model.all("jobs")) != 0 {
			t.Errorf("%d records, %d prunes", n, a.count(EventPruned))
		}
		a.ledger.failing(func(op string) error {
			if op == "complete" {
				return syscall.ENOSPC
			}
			return nil
		})
		r.job("r1", "r1-sync")
		pass(10 * time.Minute)
		if n := len(r.history()); n < 60 || len(r.model.all("jobs")) != 1 {
			t.Errorf("a disk that stays full costs all history but %d records", n)
		}
	})
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

const strangeJob = `
apiVersion: provisioning.grafana.app/v0alpha1
kind: Job
metadata:
  name: r1-sync
  namespace: default
  uid: u1
  resourceVersion: "7"
  labels: {provisioning.grafana.app/repository: r1, team: ops, provisioning.grafana.app/claim: "5", provisioning.grafana.app/claim-owner: x}
  annotations: {provisioning.grafana.app/author: amy, kubectl.kubernetes.io/last-applied-configuration: "{}"}
  finalizers: [example.com/wait]
  managedFields: []
spec: {action: pull, repository: r1, pull: {incremental: false, later: {deep: [1, 2.5, null]}}, unknown: 3}
status: {state: pending, message: old, progress: 3, warnings: [w], url: {sourceURL: s}, strange: [{a: 1}], progressUpdates: 4}
extra: kept
`

// TestWritesKeepForeignMembers: every write replaces the whole object, so what this agent does not
// know has to survive all of them.
func TestWritesKeepForeignMembers(t *testing.T) {
	t.Parallel()
	before := object(t, strangeJob)
	u := before.DeepCopy()
	setClaim(u, 1234, "tok")
	api.SetAnnotation(u, api.AnnoAttempt, "2")
	setStatus(u, api.JobStatus{State: "working", Started: 9, Message: "m", Progress: 50,
		Summary: []api.JobSummary{{Group: "g", Kind: "k", Create: 1}}})
	if !owned(u, "u1", "tok") || !claimed(u) || attemptsOf(u) != 2 {
		t.Fatal("not claimed")
	}
	status := u.Object["status"].(map[string]any)
	want := map[string]any{"state": "working", "started": int64(9), "message": "m", "progress": 50.0,
		"summary": []any{map[string]any{"group": "g", "kind": "k", "create": int64(1)}},
		"url":     map[string]any{"sourceURL": "s"}, "strange": []any{map[string]any{"a": int64(1)}}, "progressUpdates": int64(5)}
	if !reflect.DeepEqual(status, want) {
		t.Errorf("status\n %v\nwant\n %v", status, want)
	}
	stripClaim(u)
	api.SetAnnotation(u, api.AnnoAttempt, "")
	setState(u, api.StatePending)
	if claimed(u) || status["state"] != "pending" || status["progressUpdates"] != int64(6) {
		t.Errorf("after release: %v %v", u.GetLabels(), status)
	}
	stripClaim(before)
	delete(u.Object, "status")
	delete(before.Object, "status")
	if !reflect.DeepEqual(u.Object, before.Object) {
		t.Errorf("members changed that are not ours:\n %v\n %v", u.Object, before.Object)
	}
	u.DeepCopy() // panics on values that an unstructured object must not hold
}

func TestHistoricJob(t *testing.T) {
	t.Parallel()
	job := object(t, strangeJob)
	h := historicJob(job, refOf(job), map[string]any{"state": "success", "finished": int64(3)})
	data, err := json.MarshalIndent(h.Object, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: provisioning.grafana.app/v0alpha1
kind: HistoricJob
metadata:
  name: r1-sync-bb82030dbc2bcaba
  namespace: default
  labels: {provisioning.grafana.app/repository: r1, provisioning.grafana.app/original-uid: u1, team: ops}
  annotations: {provisioning.grafana.app/author: amy}
spec: {action: pull, repository: r1, pull: {incremental: false, later: {deep: [1, 2.5, null]}}, unknown: 3}
status: {state: success, finished: 3}
`
	if got := object(t, string(data)); !reflect.DeepEqual(got.Object, object(t, want).Object) {
		t.Errorf("%s", data)
	}
	if _, ok := job.GetLabels()[api.LabelClaim]; !ok {
		t.Error("the job itself was changed")
	}
	long := refOf(job)
	long.repository = strings.Repeat("r", 200)
	job.SetLabels(nil)
	if l := historicJob(job, long, nil).GetLabels(); len(l) != 1 {
		t.Errorf("a repository name that is no label value: %v", l)
	}
}

// TestHistoricJobHasOneName: whoever archives a job, and however often.
func TestHistoricJobHasOneName(t *testing.T) {
	t.Parallel()
	job := jobRef{Key: key("default", "r1-sync"), uid: "u1"}
	again, other := job, job
	again.attempt, other.uid = 3, "u2"
	if historicName(job) != historicName(again) || historicName(job) == historicName(other) {
		t.Errorf("%s, %s, another job's %s", historicName(job), historicName(again), historicName(other))
	}
	for _, name := range []string{"a", strings.Repeat("n", 253), strings.Repeat("n", 235) + "-.x", strings.Repeat("a.", 126)} {
		job.Name = name
		if bad := validation.IsDNS1123Subdomain(historicName(job)); len(bad) > 0 {
			t.Errorf("%s: %v", historicName(job), bad)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	if err := (Options{}).Validate(); err != nil {
		t.Fatalf("defaults are refused: %v", err)
	}
	for text, o := range map[string]Options{
		"at least 3 times": {Expiry: 30e9, Renew: 15e9},
		"drivers":          {Drivers: -1, Cleanup: "x"},
		"job interval":     {Interval: 1},
		"max attempts":     {MaxAttempts: -1},
		"cleanup":          {Cleanup: "sometimes", Drivers: -1}, // every reason is told
		"history":          {LocalHistory: -1},
		"grace":            {Grace: -1},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if got := (Options{HistoryExpiration: 5}).withDefaults().LocalHistory; got != 5 {
		t.Errorf("local history %d does not follow the expiration", got)
	}
}

// TestStuck: a worker that ignores its timeout is reported after a margin, an idle agent is not.
func TestStuck(t *testing.T) {
	bubble(t, func(r *rig) {
		release := make(chan struct{})
		a := r.start("a", Options{Timeout: 10 * time.Minute}, worker(func(context.Context, *Task) error { <-release; return nil }))
		pass(6 * time.Hour)
		if causes := a.Stuck(false); len(causes) > 0 {
			t.Errorf("idle: %q", causes)
		}
		r.repository("app")
		r.job("app", "app-sync")
		pass(10*time.Minute + workMargin/2)
		if causes := a.Stuck(false); len(causes) > 0 {
			t.Errorf("too early: %q", causes)
		}
		pass(workMargin)
		if causes := a.Stuck(false); len(causes) != 1 || !contains(causes[0], "app-sync") {
			t.Errorf("a stuck worker: %q", causes)
		}
		close(release)
		pass(time.Minute)
		if causes := a.Stuck(false); len(causes) > 0 {
			t.Errorf("after its end: %q", causes)
		}
	})
}

// TestEndIsNotStuck: a job whose end waits for the disk or for the server is not what a restart
// would help.
func TestEndIsNotStuck(t *testing.T) {
	for name, fail := range map[string]func(*rig, *agent){
		"full disk": func(_ *rig, a *agent) {
			a.ledger.failing(func(op string) error { return map[string]error{"complete": syscall.ENOSPC}[op] })
		},
		"delete refused": func(r *rig, _ *agent) { r.model.inject(during(deleting, 1<<30, fault{status: 403})) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("app")
				a := r.start("a", Options{Timeout: 10 * time.Minute}, quick())
				fail(r, a)
				r.job("app", "app-sync")
				pass(time.Hour)
				if causes, running := a.Stuck(false), len(a.Snapshot().Running); len(causes) > 0 || running != 1 {
					t.Errorf("stuck: %q, %d running", causes, running)
				}
			})
		})
	}
}

// TestStuckLoops: the loops of drivers and scanner have deadlines once they run.
func TestStuckLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkQueue(newEmitter(slog.New(slog.DiscardHandler), nil), "a")
		stuck := func(away bool) int { return len(w.stuck(time.Hour, time.Minute, 3, away)) }
		<-time.After(time.Hour)
		if n := stuck(false); n != 0 {
			t.Errorf("before the start: %d", n)
		}
		w.scanned()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.take(ctx)
		<-time.After(2 * time.Minute)
		if n := [2]int{stuck(false), stuck(true)}; n != [2]int{2, 1} {
			t.Errorf("%d causes", n)
		}
	})
}
