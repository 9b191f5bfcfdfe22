package repos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/reconcile"
	"limpet/sync/worker"
)

var everything = []string{api.FinalizerRemove, api.FinalizerRemoveJobs, api.FinalizerCleanup}

var boards = schema.GroupVersionResource{Group: api.DashboardGroup, Version: "v1", Resource: "dashboards"}

// leaves lets a controller have the real clean-up, and a host of the webhook that err
// decides about.
func leaves(unhooked *atomic.Int64, err func() error) func(*rig, *Options) {
	return func(r *rig, o *Options) {
		o.Orphans, o.Store = worker.NewOrphans(worker.PullOptions{Client: r.client, Logger: o.Logger}), r.store
		o.Hosts = Hosts(func(context.Context, *unstructured.Unstructured, *auth.Credentials) (Host, error) {
			unhooked.Add(1)
			return removing{}, err()
		})
	}
}

func well() error { return nil }

// removing is a host that removes any webhook.
type removing struct{ Host }

func (removing) Delete(context.Context, string) error { return nil }

// hooked makes the Repository "site" one that has a webhook.
func (r *rig) hooked() {
	r.t.Helper()
	r.create(nil, nil)
	r.state(`{"status":{"webhook":{"id":7}}}`)
}

func (r *rig) delete() {
	r.t.Helper()
	if err := r.client.Resource(api.Repositories).Namespace(r.namespace).Delete(r.t.Context(), "site", metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) count(gvr schema.GroupVersionResource) int { return len(r.all(gvr)) }

func (r *rig) all(gvr schema.GroupVersionResource) []unstructured.Unstructured {
	r.t.Helper()
	list, err := r.client.Resource(gvr).Namespace(r.namespace).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

func (r *rig) gone() {
	r.t.Helper()
	eventually(r.t, "the repository is gone", func() bool {
		_, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Get(r.t.Context(), "site", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// job makes a job of the Repository that does not run here.
func (r *rig) job(name, action string, labels map[string]string) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"action": action, "repository": "site",
		action: map[string]any{"duration": "1s"}}}}
	u.SetAPIVersion(api.Jobs.GroupVersion().String())
	u.SetKind("Job")
	u.SetName(name)
	u.SetLabels(labels)
	if _, err := r.client.Resource(api.Jobs).Namespace(r.namespace).Create(r.t.Context(), u, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// TestFinalizers: a Repository that is deleted takes its waiting jobs, its webhook and its
// objects with it, and waits for a job that runs.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var unhooked atomic.Int64
			r := newRig(t, server, leaves(&unhooked, well))
			r.repo.Add(t, "a/one.json")
			r.repo.Add(t, "two.json")
			r.hooked()
			r.pulls()
			r.until("it is pulled", func(repo api.Repository) bool { return repo.Status.Sync.State == "success" })
			eventually(t, "the job is gone", func() bool { return r.count(api.Jobs) == 0 })
			if r.count(boards) != 2 {
				t.Fatal("the dashboards are not there")
			}
			r.merge(`{"metadata":{"finalizers":["` + strings.Join(everything, `","`) + `"]}}`)
			r.job("site-push", "test", map[string]string{api.LabelClaim: "1", api.LabelClaimOwner: "somebody"})
			r.job("site-delete", "test", nil)
			eventually(t, "the controller sees the jobs", func() bool { return len(r.controller.facts.jobs.Objects()) == 2 })
			r.writes.take()
			r.delete()
			var got []string
			eventually(t, "the waiting job is gone", func() bool { got = append(got, r.writes.take()...); return len(got) > 0 })
			if !slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, "DELETE jobs/site-delete") }) || unhooked.Load() != 0 ||
				r.count(boards) != 2 {
				t.Errorf("while a job runs: %q, %d dashboards", got, r.count(boards))
			}
			if err := r.client.Resource(api.Jobs).Namespace(r.namespace).Delete(t.Context(), "site-push", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			r.gone()
			if n := r.count(boards); n != 0 || unhooked.Load() != 1 {
				t.Errorf("%d dashboards are left, the webhook was removed %d times", n, unhooked.Load())
			}
			// A look before the watch has shown that the waiting job is gone deletes it once more.
			got = slices.DeleteFunc(r.writes.take(), func(w string) bool { return strings.HasSuffix(w, "[404]") })
			if want := []string{"PATCH repositories/site: test /metadata/resourceVersion, remove /metadata/finalizers"}; !equalPrefixes(got, want) {
				t.Errorf("writes %q, want %q", got, want)
			}
		})
	}
}

// TestFinalizersOfAnEarlierRepository: where the watch still shows one that is gone, nothing is taken
// from another of its name.
func TestFinalizersOfAnEarlierRepository(t *testing.T) {
	t.Parallel()
	client, wire, _ := embedded(t)
	s := serverOf(client, api.Repositories)
	_, queue := informers(client)
	defer running(t, queue.Run)()
	create := func(gvr schema.GroupVersionResource, kind, name, content string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(content), &u.Object); err != nil {
			t.Fatal(err)
		}
		u.SetAPIVersion(gvr.GroupVersion().String())
		u.SetKind(kind)
		u.SetName(name)
		made, err := client.Resource(gvr).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	create(api.Repositories, "Repository", "site", `{"metadata":{"finalizers":["`+strings.Join(everything, `","`)+`"]},
		"spec":{"title":"Site","type":"git","workflows":[],"git":{"url":"http://127.0.0.1:1/x.git","branch":"main"},
		"sync":{"enabled":true,"target":"folder","intervalSeconds":60}}}`)
	create(boards, "Dashboard", "cpu", `{"metadata":{"annotations":{"grafana.app/managedBy":"repo","grafana.app/managerId":"site"}},
		"spec":{"title":"CPU"}}`)
	create(api.Jobs, "Job", "site-pull", `{"spec":{"action":"pull","repository":"site","pull":{}}}`)
	eventually(t, "the job is seen", func() bool { return len(queue.Objects()) == 1 })
	unhooked := 0
	f := &finalizer{
		reporter:     reporter{func(reconcile.Event) {}, slog.New(slog.DiscardHandler)},
		server:       s,
		jobs:         queue,
		orphans:      worker.NewOrphans(worker.PullOptions{Client: client}),
		cleanWebhook: func(context.Context, reconcile.Key, *unstructured.Unstructured) error { unhooked++; return nil },
		next:         func(string, string) time.Time { return time.Time{} },
		now:          time.Now,
	}
	try := func(obj *unstructured.Unstructured, again bool) {
		t.Helper()
		a := &attempt{key: reconcile.Key{Namespace: "default", Name: "site"}, memory: &memory{}, obj: obj}
		if done, err := f.finalize(t.Context(), a); !done || err != nil || a.result.Next.IsZero() == again {
			t.Errorf("done %t, %v, next %s", done, err, a.result.Next)
		}
	}
	all := client.Resource(api.Repositories).Namespace("default")
	if err := all.Delete(t.Context(), "site", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleting, err := all.Get(t.Context(), "site", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	earlier := deleting.DeepCopy()
	earlier.SetUID("an-earlier-one")
	wire.take()
	try(earlier, true)
	if got := wire.take(); len(got) > 0 || unhooked > 0 {
		t.Errorf("taken from the new one: %q", got)
	}
	try(deleting, false)
	if got := wire.take(); len(got) != 3 || unhooked != 1 {
		t.Errorf("of this one: %q, the webhook was removed %d times", got, unhooked)
	}
	create(boards, "Dashboard", "mem", `{"metadata":{"annotations":{"grafana.app/managedBy":"repo","grafana.app/managerId":"site"}},
		"spec":{"title":"Mem"}}`)
	wire.take()
	try(deleting, true)
	if got := wire.take(); len(got) > 0 || unhooked != 1 {
		t.Errorf("after it is gone: %q", got)
	}
}

// TestFinalizersAfterAnotherAnswer: where the Repository cannot be read the status says so, and its
// finalizers are worked off later.
func TestFinalizersAfterAnotherAnswer(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			var no atomic.Bool
			r := newRig(t, "embedded", func(r *rig, o *Options) {
				leaves(new(atomic.Int64), well)(r, o)
				r.writes.next = unread{r.writes.next, code, &no}
			})
			r.create(map[string]any{"sync": map[string]any{"enabled": false}}, nil)
			eventually(t, "it has finalizers", func() bool { return slices.Equal(r.all(api.Repositories)[0].GetFinalizers(), everything) })
			no.Store(true)
			r.delete()
			repo := r.until("the status says it", func(repo api.Repository) bool { return repo.Status.DeleteError != "" })
			if repo.Status.Deletion == nil || repo.Status.Deletion.State != api.DeletionBlocked {
				t.Errorf("deletion %+v", repo.Status.Deletion)
			}
			no.Store(false)
			r.gone()
		})
	}
}

// unread refuses to give an object as a proxy does, while no is set.
type unread struct {
	next http.RoundTripper
	code int
	no   *atomic.Bool
}

func (u unread) RoundTrip(q *http.Request) (*http.Response, error) {
	if !u.no.Load() || q.Method != http.MethodGet || !strings.HasSuffix(q.URL.Path, "/site") {
		return u.next.RoundTrip(q)
	}
	return &http.Response{StatusCode: u.code, Header: http.Header{"Content-Type": {"text/plain"}},
		Body: io.NopCloser(strings.NewReader("no page\n")), Request: q}, nil
}

// TestFinalizersOfTheAdmission: a Repository of an API without Grafana's admission gets the
// finalizers of that, and keeps those that it has.
func TestFinalizersOfTheAdmission(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, leaves(new(atomic.Int64), well))
			r.repo.Add(t, "a/one.json")
			r.create(nil, nil)
			r.pulls()
			finalizers := func() []string { return r.all(api.Repositories)[0].GetFinalizers() }
			eventually(t, "it has finalizers", func() bool { return slices.Equal(finalizers(), everything) })
			r.merge(`{"metadata":{"finalizers":["` + api.FinalizerRelease + `"]}}`)
			r.until("it is pulled", func(repo api.Repository) bool { return repo.Status.Sync.State == "success" })
			if got := finalizers(); !slices.Equal(got, []string{api.FinalizerRelease}) {
				t.Errorf("finalizers %q", got)
			}
		})
	}
}

// TestFinalizersThatAreRefused: where they may not be written the Repository goes on without, and
// few writes ask again.
func TestFinalizersThatAreRefused(t *testing.T) {
	t.Parallel()
	var no atomic.Bool
	no.Store(true)
	r := newRig(t, "embedded", func(r *rig, o *Options) {
		leaves(new(atomic.Int64), well)(r, o)
		r.writes.next = refusing{r.writes.next, "/metadata/finalizers", &no}
	})
	r.repo.Add(t, "a/one.json")
	r.create(nil, nil)
	repo := r.until("it is healthy", func(repo api.Repository) bool { return repo.Status.Health.Healthy })
	for range 5 {
		r.later(unhealthyFor + healthyFor)
		repo = r.until("it is checked", func(now api.Repository) bool { return now.Status.Health.Checked > repo.Status.Health.Checked })
	}
	if got := strings.Count(strings.Join(r.writes.take(), "\n"), "[403]"); got != 1 {
		t.Errorf("%d writes were refused", got)
	}
	no.Store(false)
	r.later(refusedCooldown)
	eventually(t, "it has finalizers", func() bool { return slices.Equal(r.all(api.Repositories)[0].GetFinalizers(), everything) })
}

// TestDeleteError: what is in the way is reported once, and the end comes when it
// is not any more; finalizers of others stay.
func TestDeleteError(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var unhooked atomic.Int64
			var back atomic.Bool
			r := newRig(t, server, leaves(&unhooked, func() error {
				if back.Load() {
					return nil
				}
				return errors.New("https://git.example.com does not answer")
			}))
			r.hooked()
			r.until("it is seen", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
			r.merge(`{"metadata":{"finalizers":["cleanup","release-orphan-resources","example.com/theirs"]}}`)
			r.writes.take()
			r.delete()
			repo := r.until("the fault is reported", func(repo api.Repository) bool { return repo.Status.DeleteError != "" })
			if want := "cleanup: https://git.example.com does not answer"; repo.Status.DeleteError != want {
				t.Errorf("deleteError %q, want %q", repo.Status.DeleteError, want)
			}
			if d := repo.Status.Deletion; d == nil || d.State != "blocked" || len(d.Errors) != 1 || d.Errors[0].Code != "WebhookRemovalFailed" ||
				d.Errors[0].Finalizer != "cleanup" || d.Errors[0].Detail != "https://git.example.com does not answer" ||
				*d.Errors[0].Target != (api.DeletionTarget{Group: "provisioning.grafana.app", Resource: "repositories", Name: "site"}) {
				t.Errorf("deletion %+v", d)
			}
			tries := unhooked.Load()
			eventually(t, "it is tried again", func() bool { return unhooked.Load() > tries+2 })
			told := 0
			for _, w := range r.writes.take() {
				if strings.Contains(w, "/status/deleteError") {
					told++
				}
			}
			if told != 1 {
				t.Errorf("it is told %d times", told)
			}
			back.Store(true)
			eventually(t, "the finalizers of ours are gone", func() bool {
				_, u := r.get()
				return slices.Equal(u.GetFinalizers(), []string{"example.com/theirs"})
			})
			r.merge(`{"metadata":{"finalizers":null}}`)
			r.gone()
		})
	}
}

// TestDeleteErrorIsRetried: a fault that reads otherwise each time is reported each time, and is
// not tried again the sooner for it.
func TestDeleteErrorIsRetried(t *testing.T) {
	t.Parallel()
	tries := make(chan time.Time, 1000)
	var n atomic.Int64
	r := newRig(t, "embedded", leaves(&n, func() error {
		tries <- time.Now()
		return fmt.Errorf("request %d to https://git:hunter2@host/ was refused %s", n.Load(), strings.Repeat("ä", maxDeleteError))
	}))
	r.hooked()
	r.until("it is seen", func(repo api.Repository) bool { return repo.Status.Health.Checked > 0 })
	r.merge(`{"metadata":{"finalizers":["cleanup"]}}`)
	r.delete()
	first := <-tries
	eventually(t, "it is tried again", func() bool { return len(tries) >= 2 })
	second, third := <-tries, <-tries
	for _, rest := range []time.Duration{second.Sub(first), third.Sub(second)} {
		if rest < reconcile.FirstRetry*9/10 {
			t.Errorf("tried again after %s, want %s", rest, reconcile.FirstRetry)
		}
	}
	if told := r.until("it is reported", func(repo api.Repository) bool { return repo.Status.DeleteError != "" }).Status.DeleteError; len(
		told) > maxDeleteError || !utf8.ValidString(told) || strings.Contains(told, "hunter2") {
		t.Errorf("%d bytes: %s", len(told), told)
	}
}

// TestFinalizersOfReleasedObjects: the jobs that clean up after a Repository which goes are
// not taken for its own.
func TestFinalizersOfReleasedObjects(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", leaves(new(atomic.Int64), well))
	r.create(nil, nil)
	r.merge(`{"metadata":{"finalizers":["remove-pending-jobs"]}}`)
	r.job("site-push", "test", map[string]string{api.LabelClaim: "1", api.LabelClaimOwner: "somebody"})
	eventually(t, "the controller sees the job", func() bool { return len(r.controller.facts.jobs.Objects()) == 1 })
	r.delete()
	r.job("site-deleteResources", "deleteResources", nil)
	eventually(t, "the controller sees both", func() bool { return len(r.controller.facts.jobs.Objects()) == 2 })
	r.later(jobLimit + time.Minute)
	r.gone()
	if left := r.all(api.Jobs); len(left) != 1 || left[0].GetName() != "site-deleteResources" {
		t.Errorf("%d jobs are left, want the one that cleans up: its Repository owns the other", len(left))
	}
}

// TestJobIsDeletedAsSeen: one that has been claimed since is not.
func TestJobIsDeletedAsSeen(t *testing.T) {
	t.Parallel()
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, nil)
			r.create(map[string]any{"sync": map[string]any{"enabled": false}}, nil)
			r.job("site-push", "test", nil)
			all := r.client.Resource(api.Jobs).Namespace(r.namespace)
			seen, err := all.Get(t.Context(), "site-push", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			claimed := seen.DeepCopy()
			claimed.SetLabels(map[string]string{api.LabelClaim: "1"})
			if claimed, err = all.Update(t.Context(), claimed, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := jobsOf(r).deleteJob(t.Context(), seen); !apierrors.IsConflict(err) {
				t.Errorf("as it was: %v", err)
			}
			if err := jobsOf(r).deleteJob(t.Context(), claimed); err != nil {
				t.Errorf("as it is: %v", err)
			}
		})
	}
}

// TestForceDelete: a remote that is gone for ever holds up nothing.
func TestForceDelete(t *testing.T) {
	t.Parallel()
	var unhooked atomic.Int64
	r := newRig(t, "embedded", leaves(&unhooked, func() error { return errors.New("no such host") }))
	r.hooked()
	r.merge(`{"metadata":{"finalizers":["cleanup"],"annotations":{"` + annoForce + `":"true"}}}`)
	r.delete()
	r.gone()
	if unhooked.Load() == 0 {
		t.Error("the webhook was not asked about at all")
	}
}

// TestForceDeleteOfObjects: what is in the way of the deletion is named object by object, and the
// finalizer that the status names is the only one that the annotation removes.
func TestForceDeleteOfObjects(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", leaves(new(atomic.Int64), well))
	r.repo.Add(t, "a/one.json")
	r.create(nil, nil)
	r.pulls()
	r.until("it is pulled", func(repo api.Repository) bool { return repo.Status.Sync.State == "success" })
	board := r.all(boards)[0]
	mine := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Mine"}}}
	mine.SetAPIVersion("dashboard.grafana.app/v1")
	mine.SetKind("Dashboard")
	mine.SetName("mine")
	mine.SetAnnotations(map[string]string{api.AnnoFolder: board.GetAnnotations()[api.AnnoFolder]})
	if _, err := r.client.Resource(boards).Namespace(r.namespace).Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.merge(`{"metadata":{"finalizers":["remove-orphan-resources","example.com/theirs"]}}`)
	r.delete()
	repo := r.until("it is blocked", func(repo api.Repository) bool { return repo.Status.Deletion != nil })
	var targets []string
	for _, e := range repo.Status.Blocked() {
		targets = append(targets, e.Finalizer+" "+e.Target.Resource+" "+e.Target.Name)
	}
	if want := []string{"remove-orphan-resources folders " + board.GetAnnotations()[api.AnnoFolder], "remove-orphan-resources folders site"}; !slices.
		Equal(targets, want) || !strings.Contains(repo.Status.Deletion.Errors[0].Detail, "dashboard/mine in it") {
		t.Errorf("%q, %+v", targets, repo.Status.Deletion)
	}
	r.merge(`{"metadata":{"annotations":{"` + annoForce + `":"true"}}}`)
	eventually(t, "the finalizer is gone", func() bool {
		_, u := r.get()
		return slices.Equal(u.GetFinalizers(), []string{"example.com/theirs"})
	})
	if all := r.all(boards); len(all) != 1 || all[0].GetName() != "mine" {
		t.Errorf("%d dashboards are left", len(all))
	}
	r.merge(`{"metadata":{"finalizers":null}}`)
	r.gone()
}

func jobsOf(r *rig) server { return serverOf(r.client, api.Repositories) }
