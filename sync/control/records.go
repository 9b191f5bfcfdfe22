package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// ErrNoRecord reports that the history has no such job.
var ErrNoRecord = errors.New("not in the history")

// AmbiguousError reports a name that exists in several namespaces.
type AmbiguousError struct {
	Noun, Name string
	Namespaces []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("there is a %s %q in several namespaces: %s", e.Noun, e.Name, strings.Join(e.Namespaces, ", "))
}

// pageSize is the number of records in one read of a name.
const pageSize = 500

// Pages reads what q selects, newest first, so that neither process holds more than a page of n
// records. Jobs that end meanwhile are not included.
func Pages(ctx context.Context, store History, q state.Query, n int) iter.Seq2[[]state.Record, error] {
	return func(yield func([]state.Record, error) bool) {
		left := q.Limit
		for more := true; more; {
			q.Limit = n
			if left > 0 {
				q.Limit = min(n, left)
			}
			page, err := store.History(ctx, q)
			if err != nil {
				yield(nil, err)
				return
			}
			more = yield(page, nil) && len(page) == q.Limit && len(page) != left
			if more {
				left, q.Before = max(left-n, 0), page[len(page)-1].Cursor()
			}
		}
	}
}

// BeginsUID reports whether a text may be a UID or how one begins.
func BeginsUID(job string) bool {
	return len(job) >= 4 && len(job) <= uidLength && strings.Trim(job, "0123456789abcdef-") == ""
}

// FindRecord returns a finished job of the history by UID, else the newest of that name, else the
// only one whose UID begins so. The error is ErrNoRecord when there is none, and an *AmbiguousError
// when jobs in several namespaces have the name and none is given.
func FindRecord(ctx context.Context, store History, namespace, job string) (state.Record, error) {
	records, err := store.History(ctx, state.Query{UID: job, Limit: 1})
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return state.Record{}, err
	}
	if len(records) == 1 {
		RedactRecord(&records[0])
		return records[0], nil
	}
	rec, err := newestRecord(ctx, store, state.Query{Namespace: namespace}, job)
	switch {
	case errors.Is(err, ErrNoRecord) && BeginsUID(job):
		rec, err = onlyUID(ctx, store, namespace, job)
	case err == nil && namespace == "":
		err = OnlyIn(ctx, store, rec.Namespace, job)
	}
	RedactRecord(&rec)
	return rec, err
}

// onlyUID returns the record whose UID begins so.
func onlyUID(ctx context.Context, store History, namespace, prefix string) (found state.Record, err error) {
	for page, err := range Pages(ctx, store, state.Query{Namespace: namespace}, pageSize) {
		if err != nil {
			return found, err
		}
		for _, rec := range page {
			switch {
			case !strings.HasPrefix(rec.UID, prefix):
			case found.UID != "":
				return found, fmt.Errorf("%q is how the UIDs of several jobs begin: %s, %s", prefix, found.UID, rec.UID)
			default:
				found = rec
			}
		}
	}
	if found.UID == "" {
		err = fmt.Errorf("job %q is %w", prefix, ErrNoRecord)
	}
	return found, err
}

// OnlyIn returns an *AmbiguousError when jobs of that name have ended in other namespaces too.
func OnlyIn(ctx context.Context, store History, namespace, job string) error {
	other, err := newestRecord(ctx, store, state.Query{Outside: namespace, Brief: true}, job)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil
	case err != nil:
		return err
	}
	in := []string{namespace, other.Namespace}
	slices.Sort(in)
	return &AmbiguousError{Noun: "job", Name: job, Namespaces: in}
}

// newestRecord returns the newest record of a name among those of q.
func newestRecord(ctx context.Context, store History, q state.Query, job string) (state.Record, error) {
	q.Words = []string{job}
	for page, err := range Pages(ctx, store, q, pageSize) {
		if err != nil {
			return state.Record{}, err
		}
		if i := slices.IndexFunc(page, func(rec state.Record) bool { return rec.Name == job }); i >= 0 {
			return page[i], nil
		}
	}
	return state.Record{}, fmt.Errorf("job %q is %w", job, ErrNoRecord)
}

// FindFinished returns a finished job by its UID or name: from the history of this host, unless
// store is nil, or from the HistoricJobs of the API, where other agents leave theirs; the later one
// of both.
func FindFinished(ctx context.Context, store History, client *kube.Client, namespace, job string) (state.Record, error) {
	rec, err := state.Record{}, ErrNoRecord
	if store != nil {
		rec, err = FindRecord(ctx, store, namespace, job)
	}
	switch {
	case err == nil && rec.UID == job:
		return rec, nil
	case errors.Is(err, ErrNoDaemon): // the API may answer although the daemon does not
		err = ErrNoRecord
	case err != nil && !errors.Is(err, ErrNoRecord):
		return rec, err
	}
	past, pastErr := findHistoric(ctx, client, namespace, job)
	if pastErr == nil && (err != nil || past.Finished.After(rec.Finished)) {
		return past, nil
	}
	if err != nil && !errors.Is(pastErr, ErrNoRecord) {
		return past, pastErr
	}
	return rec, err
}

// uidLength is that of the UUIDs that Kubernetes-style APIs use.
const uidLength = 36

// findHistoric returns the HistoricJob of a UID, else the newest of a name; ErrNoRecord also when
// the server does not serve them.
func findHistoric(ctx context.Context, client *kube.Client, namespace, job string) (state.Record, error) {
	var newest *unstructured.Unstructured
	var in []string
	opts := metav1.ListOptions{Limit: pageSize, LabelSelector: api.LabelOriginalUID}
	if len(job) == uidLength {
		opts.LabelSelector += "=" + job
	}
	for {
		page, err := client.Resource(api.HistoricJobs).Namespace(namespace).List(ctx, opts)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
			return state.Record{}, ErrNoRecord
		}
		if err != nil {
			return state.Record{}, err
		}
		for i := range page.Items {
			u := &page.Items[i]
			if u.GetLabels()[api.LabelOriginalUID] != job && jobName(u) != job {
				continue
			}
			in = append(in, u.GetNamespace())
			if newest == nil || newest.GetCreationTimestamp().Time.Before(u.GetCreationTimestamp().Time) {
				newest = u
			}
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			break
		}
	}
	slices.Sort(in)
	switch in = slices.Compact(in); len(in) {
	case 0:
		return state.Record{}, ErrNoRecord
	case 1:
		return recordOf(newest)
	}
	return state.Record{}, &AmbiguousError{Noun: "job", Name: job, Namespaces: in}
}

// jobName returns the name of the job of a HistoricJob, whose own name has a suffix.
func jobName(u *unstructured.Unstructured) string {
	if i := strings.LastIndexByte(u.GetName(), '-'); i > 0 {
		return u.GetName()[:i]
	}
	return u.GetName()
}

// recordOf returns a HistoricJob as a record.
func recordOf(u *unstructured.Unstructured) (rec state.Record, err error) {
	job, err := api.JobView(u)
	if err != nil {
		return rec, err
	}
	rec = state.Record{
		UID:        u.GetLabels()[api.LabelOriginalUID],
		Namespace:  u.GetNamespace(),
		Name:       jobName(u),
		Repository: job.Spec.Repository,
		Action:     job.Spec.Action,
		State:      job.Status.State,
		Message:    job.Status.Message,
		Started:    api.TimeOfMillis(job.Status.Started),
		Finished:   api.TimeOfMillis(job.Status.Finished),
	}
	if rec.Spec, err = json.Marshal(u.Object["spec"]); err == nil {
		rec.Status, err = json.Marshal(u.Object["status"])
	}
	RedactRecord(&rec)
	return rec, err
}

// RedactRecord removes secrets from the texts of a record. Only texts with a URL are examined: that
// is where they occur, and lists are long.
func RedactRecord(rec *state.Record) {
	redact := func(s *string) {
		if strings.Contains(*s, "://") {
			*s = text.Redact(*s)
		}
	}
	redact(&rec.Message)
	for i := range rec.Attempts {
		redact(&rec.Attempts[i].Message)
	}
	for i := range rec.Issues {
		redact(&rec.Issues[i].Message)
	}
	if rec.DeadLetter != nil {
		redact(&rec.DeadLetter.LastError)
	}
}

// AttemptText describes an attempt.
func AttemptText(a state.Attempt) string {
	span := ""
	if !a.Started.IsZero() {
		span += ", from " + a.Started.UTC().Format(time.RFC3339)
	}
	if !a.Finished.IsZero() {
		span += ", to " + a.Finished.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s by %s%s: %s", a.State, text.OrDash(a.Agent), span, text.OrDash(a.Message))
}

// HistoryPage returns a page of the history.
func (l *Local) HistoryPage(ctx context.Context, q snapshot.HistoryQuery) (page snapshot.HistoryPage, err error) {
	q.Brief = true
	if page.Rows, err = l.store.History(ctx, q); err != nil {
		return page, err
	}
	if n := len(page.Rows); q.Limit > 0 && n == q.Limit {
		page.Next = page.Rows[n-1].Cursor()
	}
	info, err := l.store.Info(ctx)
	page.All = info.History
	return page, err
}

// PastJob returns a finished job.
func (l *Local) PastJob(ctx context.Context, uid string) (snapshot.Job, error) {
	r, err := FindRecord(ctx, l.store, "", uid)
	if err != nil {
		return snapshot.Job{}, err
	}
	j := snapshot.Job{
		UID:        r.UID,
		Namespace:  r.Namespace,
		Name:       r.Name,
		Repository: r.Repository,
		Action:     r.Action,
		State:      r.State,
		Message:    r.Message,
		Created:    r.Created,
		Started:    r.Started,
		Finished:   r.Finished,
		RefFrom:    r.RefFrom,
		RefTo:      r.RefTo,
		Attempt:    max(len(r.Attempts), 1),
		Progress:   100,
		Owner:      "this",
		Commit:     r.Commit,
	}
	// Steps belong to the last attempt, which may have begun long after the job.
	at := r.Finished
	for _, s := range slices.Backward(r.Steps) {
		took := time.Duration(s.Seconds * float64(time.Second))
		at = at.Add(-took)
		j.Steps = append(j.Steps, snapshot.Step{Text: s.Text, At: at, Took: took})
	}
	slices.Reverse(j.Steps)
	var status api.JobStatus
	if json.Unmarshal(r.Status, &status) == nil { // else the record has no more
		j.Summary, j.Errors, j.Warnings, j.URLs = snapshot.Summaries(status.Summary), status.Errors, status.Warnings, snapshot.Links(status.URLs)
	}
	for level, list := range map[string]*[]string{api.StateError: &j.Errors, api.StateWarning: &j.Warnings} {
		if all := issueTexts(r, level); len(all) > len(*list) {
			*list = all
		}
	}
	var spec api.JobSpec
	if json.Unmarshal(r.Spec, &spec) == nil {
		j.Detail = snapshot.JobDetail(r.Name, spec)
	}
	for _, a := range r.Attempts {
		level := "info"
		if a.State == api.StateError {
			level = "error"
		}
		j.Log = append(j.Log, snapshot.Event{
			At: cmp.Or(a.Finished, a.Started), Level: level, Text: fmt.Sprintf("attempt %d: %s", a.N, AttemptText(a)),
		})
	}
	return j, nil
}

// issueTexts returns the errors or the warnings that a record keeps beside its status, in the form
// of the texts there.
func issueTexts(r state.Record, level string) (out []string) {
	for _, i := range r.Issues {
		if i.State == level {
			out = append(out, i.String())
		}
	}
	return out
}
