package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"limpet/state/frame"
)

// Attempt is one try of a job.
type Attempt struct {
	N        int       `json:"n"`
	Agent    string    `json:"agent,omitempty"`
	State    string    `json:"state,omitempty"`
	Message  string    `json:"message,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
}

// Step is one part of the last run of a job.
type Step struct {
	Text    string  `json:"text"`
	Seconds float64 `json:"seconds"`
}

// Issue is an error or a warning of a job, about one resource or one file.
type Issue struct {
	State   string `json:"state"`            // error or warning
	Reason  string `json:"reason,omitempty"` // of a small set, such as parse, ownership, forbidden
	Message string `json:"message"`
	Path    string `json:"path,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Name    string `json:"name,omitempty"`
	Action  string `json:"action,omitempty"`
}

// String is the message with what it is about, as the status of a job has it.
func (i Issue) String() string {
	var about []string
	for _, a := range [][2]string{{"file", i.Path}, {"name", i.Name}} {
		if a[1] != "" {
			about = append(about, a[0]+": "+a[1])
		}
	}
	if len(about) == 0 {
		return i.Message
	}
	return i.Message + " (" + strings.Join(append(about, "action: "+i.Action), ", ") + ")"
}

// Commit identifies a Git commit for people: subject, author, time.
type Commit struct {
	Subject string    `json:"subject,omitempty"`
	Author  string    `json:"author,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// DeadLetter marks a job whose attempts were used up without a result.
type DeadLetter struct {
	Reason    string `json:"reason"` // what ended the last attempt: crashed, transient, timeout
	Attempts  int    `json:"attempts"`
	LastError string `json:"lastError,omitempty"`
}

// Record is the history of one job: one per UID, whatever the number of attempts.
type Record struct {
	UID        string            `json:"uid"`
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Repository string            `json:"repository,omitempty"`
	Action     string            `json:"action,omitempty"`
	State      string            `json:"state,omitempty"`
	Message    string            `json:"message,omitempty"`
	Agent      string            `json:"agent,omitempty"`
	Started    time.Time         `json:"started,omitzero"`
	Finished   time.Time         `json:"finished,omitzero"` // kept to the millisecond for its place in the order
	Attempts   []Attempt         `json:"attempts,omitempty"`
	Spec       json.RawMessage   `json:"spec,omitempty"`
	Status     json.RawMessage   `json:"status,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Tally      *Totals           `json:"counter,omitempty"` // of the Status, in the answer to a brief Query; never in the file
	RefFrom    string            `json:"refFrom,omitempty"`
	RefTo      string            `json:"refTo,omitempty"`
	DeadLetter *DeadLetter       `json:"deadLetter,omitempty"` // nil unless the attempts were used up

	// HistoricJob is what became of the copy for the API: posted, unavailable, skipped, or empty while
	// it is open. Once set it survives a replacement that leaves it empty, because the copy is posted
	// at most once per UID.
	HistoricJob string `json:"historicJob,omitempty"`

	Created time.Time `json:"created,omitzero"` // of the Job, by the server's clock
	Commit  *Commit   `json:"commit,omitempty"` // RefTo, where it was read
	Steps   []Step    `json:"steps,omitempty"`  // of the last run, one behind the other

	// Issues are the errors and warnings of the last run, more than the Status holds. IssuesLeft
	// counts those beyond the bound.
	Issues     []Issue `json:"issues,omitempty"`
	IssuesLeft int64   `json:"issuesLeft,omitempty"`
}

// Cursor is the record's place in the order of the history, for Query.Before.
func (r Record) Cursor() string { return fmt.Sprintf("%x", recordKey(r.Finished, r.UID)) }

// recordKey orders by the time of finish, so that pruning deletes a prefix of the bucket.
func recordKey(finished time.Time, uid string) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(uid)), uint64(max(finished.UnixMilli(), 0)))
	return append(key, uid...)
}

// PutRecord inserts the record or replaces the one of that UID, moving it to its new time of finish
// and merging the attempts (same N: the new one wins). A record without a time of finish gets the
// present.
func (s *Store) PutRecord(ctx context.Context, r Record) error {
	if r.UID == "" {
		return fmt.Errorf("write history of %s/%s: no uid", r.Namespace, r.Name)
	}
	return s.write(ctx, func(t *txn) error { return t.putRecord(r, false) })
}

// PutQueued is PutRecord, and adds the record to HistoryQueue in the same transaction.
func (s *Store) PutQueued(ctx context.Context, r Record) error {
	return s.write(ctx, func(t *txn) error {
		if err := t.putRecord(r, false); err != nil {
			return err
		}
		return t.enqueueRecord(r)
	})
}

// HistoryCount returns the number of records, without reading them.
func (s *Store) HistoryCount(ctx context.Context) (int, error) {
	m, err := read(ctx, s, view.meta)
	return m.Counters[frame.History].N, err
}

// pruneBatch is how many records one transaction removes: a few milliseconds, which is what a
// completion that comes just behind it waits longer. Measured 2026-11 on a busy machine while
// 100,000 records of 770 bytes were trimmed: a completion takes 4.2 ms at the median instead of
// 1.3.
const pruneBatch = 250

// PruneHistory removes the records that finished before that time, oldest first, and returns their
// number. Those in HistoryQueue stay. After an error or the end of ctx the batches before it stay
// removed.
func (s *Store) PruneHistory(ctx context.Context, before time.Time) (removed int, err error) {
	end := recordKey(before, "")
	return s.dropOldest(ctx, true, func(key []byte, _ frame.Counter) bool { return bytes.Compare(key, end) < 0 })
}

// TrimHistory removes the oldest records until at most maxRecords are left, and says how many were
// removed.
func (s *Store) TrimHistory(ctx context.Context, maxRecords int) (removed int, err error) {
	return s.dropOldest(ctx, false, func(_ []byte, left frame.Counter) bool { return left.N > max(maxRecords, 0) })
}

// TrimHistoryBytes removes the oldest records until those that are left, with their keys and
// frames, have at most maxBytes, and returns the number removed. It knows the sum without reading
// the records. The file itself does not shrink by that: its free pages are used again, and Compact
// gives them back.
func (s *Store) TrimHistoryBytes(ctx context.Context, maxBytes int64) (removed int, err error) {
	return s.dropOldest(ctx, false, func(_ []byte, left frame.Counter) bool { return left.Bytes > max(maxBytes, 0) })
}

// dropOldest removes records from the old end while drop accepts the key and the counter of the
// remaining ones. The record of a job that is still claimed stays: it is the only copy of a result
// that the API has not taken yet. With unsent those in HistoryQueue stay too. On a full disk it goes on
// in smaller steps, which need fewer new pages.
func (s *Store) dropOldest(ctx context.Context, unsent bool, drop func(key []byte, left frame.Counter) bool) (removed int, err error) {
	for step := pruneBatch; ; {
		n := 0
		err := s.write(ctx, func(t *txn) (err error) {
			n, err = t.dropOldest(step, unsent, drop)
			return err
		})
		switch {
		case noSpace(err) && step > 1:
			step = max(step/4, 1)
		case err != nil:
			return removed, err
		case n < step:
			return removed + n, nil
		default:
			removed += n
		}
	}
}

func (t *txn) dropOldest(step int, unsent bool, drop func(key []byte, left frame.Counter) bool) (int, error) {
	claims, facts := t.bucket(frame.Claims), t.bucket(frame.Facts)
	left := t.m.Counters[frame.History]
	var keys [][]byte
	c := t.bucket(frame.History).Cursor()
	for k, raw := c.First(); k != nil && len(keys) < step && drop(k, left); k, raw = c.Next() {
		if len(k) > 8 && claims.Get(k[8:]) != nil || unsent && facts.Get(queuedRecord(k)) != nil {
			continue
		}
		keys = append(keys, bytes.Clone(k))
		left.Remove(k, raw)
	}
	for _, k := range keys {
		if err := t.remove(frame.History, k); err != nil {
			return 0, err
		}
		if len(k) <= 8 {
			continue
		}
		if err := t.remove(frame.UIDs, k[8:]); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// putRecord writes r in place of the record of its UID. ending is for the records of claims, which
// the size cap and a full disk must not refuse.
func (t *txn) putRecord(r Record, ending bool) error {
	t.ending = ending
	defer func() { t.ending = false }()
	old, oldKey, ok, err := t.record(r.UID)
	if err != nil {
		return err
	}
	r.dropInvalidTimes()
	if r.Finished.IsZero() {
		r.Finished = t.now
	}
	var oldBody []byte
	if ok {
		f, _, _ := t.get(frame.History, oldKey)
		oldBody = bytes.Clone(f.Body) // the record may move, and its old place goes first
		r.Attempts = mergeAttempts(old.Attempts, r.Attempts)
		if r.HistoricJob == "" {
			r.HistoricJob = old.HistoricJob
		}
	}
	key := recordKey(r.Finished, r.UID)
	body, err := encodeOver(frame.History, r, oldBody, recordFields)
	if err != nil {
		return err
	}
	moves := !bytes.Equal(key, oldKey)
	if ok && moves {
		if err := t.remove(frame.History, oldKey); err != nil {
			return err
		}
	}
	if err := t.put(frame.History, key, body); err != nil || !moves {
		return err
	}
	return t.putJSON(frame.UIDs, []byte(r.UID), key)
}

// dropInvalidTimes makes times zero that have no form in JSON. They come from objects and commits
// that anybody may write, and a result that could not be kept for one of them would be tried for
// ever.
func (r *Record) dropInvalidTimes() {
	sober := func(t *time.Time) {
		if _, err := t.MarshalText(); err != nil {
			*t = time.Time{}
		}
	}
	for _, t := range []*time.Time{&r.Started, &r.Finished, &r.Created} {
		sober(t)
	}
	r.Attempts = slices.Clone(r.Attempts)
	for i := range r.Attempts {
		sober(&r.Attempts[i].Started)
		sober(&r.Attempts[i].Finished)
	}
	if r.Commit != nil {
		c := *r.Commit
		sober(&c.At)
		r.Commit = &c
	}
}

// record returns the record of a job and its key.
func (v view) record(uid string) (r Record, key []byte, ok bool, err error) {
	f, ok, err := v.get(frame.UIDs, []byte(uid))
	if err != nil || !ok {
		return Record{}, nil, false, err
	}
	if err := decodeJSON(f, &key); err != nil {
		return Record{}, nil, false, err
	}
	f, ok, err = v.get(frame.History, key)
	if err != nil {
		return Record{}, nil, false, err
	}
	if !ok {
		return Record{}, nil, false, frame.Corrupt("history of job %s is missing", uid)
	}
	return r, key, true, decodeJSON(f, &r)
}

func mergeAttempts(old, fresh []Attempt) []Attempt {
	out := slices.Clone(fresh)
	for _, a := range old {
		if !slices.ContainsFunc(fresh, func(b Attempt) bool { return a.N == b.N }) {
			out = append(out, a)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].N < out[j].N })
	return out
}

// Query selects records of the history; zero fields select everything.
type Query struct {
	UID        string
	Repository string
	Namespace  string
	Outside    string // a namespace that none is of
	Action     string
	States     []string
	Since      time.Time // finished at or after
	Until      time.Time // finished before
	Ref        string    // how RefTo or RefFrom begins
	Words      []string  // each occurs in the name, repository, action, state, message or subject of the commit, in any case
	Brief      bool      // with Tally, but without Spec, Status, Labels, Steps and Issues, which are most of a record
	Limit      int       // at most that many records; 0 = all
	Before     string    // Record.Cursor of the last record of the page before
}

func (q Query) matches(r Record) bool {
	return (q.UID == "" || q.UID == r.UID) &&
		(q.Repository == "" || q.Repository == r.Repository) &&
		(q.Namespace == "" || q.Namespace == r.Namespace) &&
		(q.Outside == "" || q.Outside != r.Namespace) &&
		(q.Action == "" || q.Action == r.Action) &&
		(len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		(q.Ref == "" || strings.HasPrefix(r.RefTo, q.Ref) || strings.HasPrefix(r.RefFrom, q.Ref)) &&
		q.matchesWords(r)
}

func (q Query) matchesWords(r Record) bool {
	if len(q.Words) == 0 {
		return true
	}
	subject := ""
	if r.Commit != nil {
		subject = r.Commit.Subject
	}
	text := strings.ToLower(strings.Join([]string{r.Name, r.Repository, r.Action, r.State, r.Message, subject}, "\n"))
	for _, w := range q.Words {
		if !strings.Contains(text, strings.ToLower(w)) {
			return false
		}
	}
	return true
}

// add appends a record that matches.
func (q Query) add(out []Record, r Record) []Record {
	if q.Brief {
		r.Tally = totalsOf(r.Status)
		r.Spec, r.Status, r.Labels, r.Steps, r.Issues = nil, nil, nil, nil, nil
	}
	return append(out, r)
}

// History returns the selected records, newest first.
func (s *Store) History(ctx context.Context, q Query) ([]Record, error) {
	low, high, err := q.bounds()
	if err != nil {
		return nil, err
	}
	return read(ctx, s, func(v view) (out []Record, err error) {
		if q.UID != "" {
			r, key, ok, err := v.record(q.UID)
			if ok && bytes.Compare(key, low) >= 0 && (high == nil || bytes.Compare(key, high) < 0) && q.matches(r) {
				out = q.add(out, r)
			}
			return out, err
		}
		err = v.scanBack(ctx, frame.History, low, high, func(_ []byte, f frame.Frame) (bool, error) {
			var r Record
			if err := decodeJSON(f, &r); err != nil {
				return false, err
			}
			if q.matches(r) {
				out = q.add(out, r)
			}
			return q.Limit <= 0 || len(out) < q.Limit, nil
		})
		return out, err
	})
}

// bounds returns the keys between which the query reads: low included, high (nil = the end) not.
func (q Query) bounds() (low, high []byte, err error) {
	if !q.Since.IsZero() {
		low = recordKey(q.Since, "")
	}
	if !q.Until.IsZero() {
		high = recordKey(q.Until, "")
	}
	if q.Before != "" {
		cursor, err := hex.DecodeString(q.Before)
		if err != nil || len(cursor) <= 8 {
			return nil, nil, fmt.Errorf("read history: %q is not a cursor", q.Before)
		}
		if high == nil || bytes.Compare(cursor, high) < 0 {
			high = cursor
		}
	}
	return low, high, nil
}

// Totals summarizes the Status of a record for one row of a list.
type Totals struct {
	Create   int64  `json:"create,omitempty"`
	Update   int64  `json:"update,omitempty"`
	Delete   int64  `json:"delete,omitempty"`
	Counted  bool   `json:"counted,omitempty"` // the three are known
	Errors   int    `json:"errorCount,omitempty"`
	Warnings int    `json:"warningCount,omitempty"`
	Only     string `json:"only,omitempty"` // the error or warning, where there is one; of a long one the beginning
}

// maxOnly bounds Only, in bytes: a row is a line of a terminal, a long path and a reason.
const maxOnly = 400

// totalsOf sums up a job status; nil when it has no counts.
func totalsOf(status []byte) *Totals {
	var s struct {
		Summary []struct {
			Totals         // of which it has the first three
			Error, Warning int
		}
		Errors, Warnings []string
	}
	if len(status) == 0 || json.Unmarshal(status, &s) != nil {
		return nil
	}
	errors, warnings := 0, 0
	t := Totals{Counted: len(s.Summary) > 0, Errors: len(s.Errors), Warnings: len(s.Warnings)}
	for _, k := range s.Summary {
		t.Create += k.Create
		t.Update += k.Update
		t.Delete += k.Delete
		errors, warnings = errors+k.Error, warnings+k.Warning
	}
	t.Errors, t.Warnings = max(t.Errors, errors), max(t.Warnings, warnings) // the lists have the first ones
	if all := append(s.Errors, s.Warnings...); len(all) == 1 {
		t.Only = all[0]
		if len(t.Only) > maxOnly {
			t.Only = strings.ToValidUTF8(t.Only[:maxOnly], "")
		}
	}
	if !t.Counted && t.Errors+t.Warnings == 0 {
		return nil
	}
	return &t
}
