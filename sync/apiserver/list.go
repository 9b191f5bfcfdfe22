package apiserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/state"
	"limpet/sync/api"
)

// A list shows the objects of one revision. Pages after the first read the
// current objects and undo the changes since the first page by the events of the
// feed. When the feed no longer holds these events, the list has expired.

// freshTimeout is how long a request waits for a revision that the server has
// not reached. Source: the real server's watch cache.
const freshTimeout = 3 * time.Second

// listPage is one page of a list, in stored and revealed form.
type listPage struct {
	Items    [][]byte
	Revision uint64
	Continue string // token of the next page; "" = this is the last
	Left     *int64 // objects on later pages; nil = unknown
}

// listToken is a position in a list. Its form is the real server's.
type listToken struct {
	Version   string `json:"v"`
	Revision  int64  `json:"rv"` // -1: continue with the current objects
	Start     string `json:"start"`
	Namespace string `json:"ns,omitempty"` // of the last object before Start
	Name      string `json:"n,omitempty"`
	Given     int    `json:"given,omitempty"` // objects on this page and those before
}

const tokenVersion = "meta.k8s.io/v1"

func (t listToken) encode() string {
	data, err := json.Marshal(t)
	if err != nil {
		return "" // strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func parseToken(text string) (t listToken, err error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil || t.Version != tokenVersion || t.Start == "" {
		return t, badRequest("continue key is not valid: %q", text)
	}
	return t, nil
}

func (c *call) list() error {
	o, err := listParameters(c.req.URL.Query(), c.info.Kind, "", false)
	if err != nil {
		return err
	}
	page, err := c.page(c.req.Context(), c.info, o)
	if err != nil {
		return err
	}
	c.answerPage(c.w, c.req, c.media, c.info.Kind, c.info.Version, page)
	return nil
}

// page reads one page of a list.
func (s *Server) page(ctx context.Context, info requestInfo, o listOptions) (listPage, error) {
	o.Select.Namespace = info.Namespace
	at, from, err := s.position(ctx, o)
	if err != nil {
		return listPage{}, err
	}
	if name, ok := o.Select.exactName(); ok && at == 0 && info.Namespace != "" && o.Continue == "" {
		return s.pageOfOne(ctx, info, o, name)
	}
	var out listPage
	for {
		q := state.ObjectQuery{Resource: resourceName(info.Kind), Namespace: info.Namespace, After: from.Start}
		if o.Limit > 0 {
			q.Limit = int(o.Limit) - len(out.Items)
		}
		chunk, err := s.store.Objects(ctx, q)
		if err != nil {
			if from.Start != "" && ctx.Err() == nil {
				return listPage{}, badRequest("continue key is not valid: %s", err)
			}
			return listPage{}, err
		}
		if at == 0 {
			at = chunk.Revision
		}
		items, ok := s.rolledBack(ctx, info, chunk, from, at)
		if !ok {
			return listPage{}, expiredList(o, from)
		}
		for _, item := range items {
			if o.Select.matches(info.Kind, item.Data) {
				data, err := s.reveal(ctx, info.Kind, item.Data)
				if err != nil {
					return listPage{}, err
				}
				out.Items = append(out.Items, data)
			}
		}
		out.Revision = at
		if chunk.Next == "" {
			return out, nil
		}
		last := chunk.Items[len(chunk.Items)-1].Key
		from = listToken{
			Version:   tokenVersion,
			Revision:  int64(at),
			Start:     chunk.Next,
			Namespace: last.Namespace,
			Name:      last.Name,
			Given:     from.Given + len(items),
		}
		if o.Limit > 0 && len(out.Items) >= int(o.Limit) {
			out.Continue = from.encode()
			if !o.Select.everything() {
				return out, nil
			}
			switch n, ok := s.left(ctx, info, at, from.Given); {
			case ok && n <= 0:
				out.Continue = "" // the remaining objects are newer than this list
			case ok:
				out.Left = &n
			}
			return out, nil
		}
	}
}

// pageOfOne is a list that can have one object at most.
func (s *Server) pageOfOne(ctx context.Context, info requestInfo, o listOptions, name string) (listPage, error) {
	out := listPage{Revision: s.seen()}
	if name == "" {
		return out, nil
	}
	item, err := s.store.Object(ctx, objectKey(info.Kind, info.Namespace, name))
	if err != nil {
		return out, absent(err, nil)
	}
	out.Revision = max(out.Revision, item.Revision)
	if !o.Select.matches(info.Kind, item.Data) {
		return out, nil
	}
	data, err := s.reveal(ctx, info.Kind, item.Data)
	out.Items = [][]byte{data}
	return out, err
}

// position returns the revision of a list (0 = now) and the token of the object
// that precedes it.
func (s *Server) position(ctx context.Context, o listOptions) (at uint64, from listToken, err error) {
	revision, given, err := o.revision()
	if err != nil {
		return 0, from, err
	}
	if o.Continue != "" {
		if given {
			return 0, from, badRequest("specifying resource version is not allowed when using continue")
		}
		if from, err = parseToken(o.Continue); err != nil {
			return 0, from, err
		}
		return uint64(max(from.Revision, 0)), from, nil
	}
	if !given {
		return 0, from, nil
	}
	if !s.progress.wait(ctx, revision, freshTimeout) {
		return 0, from, s.tooLarge(revision)
	}
	if o.Match == metav1.ResourceVersionMatchExact || o.Match == "" && o.Limit > 0 {
		return revision, from, nil
	}
	return 0, from, nil
}

// rolledBack returns the objects of a chunk as they were at a revision.
func (s *Server) rolledBack(
	ctx context.Context, info requestInfo, chunk state.ObjectPage, from listToken, at uint64,
) ([]state.Object, bool) {
	if at >= chunk.Revision {
		return chunk.Items, true
	}
	// The events of the chunk's commit may not be in the feed yet.
	if !s.progress.wait(ctx, chunk.Revision, freshTimeout) {
		return nil, false
	}
	events, ok := s.feeds[resourceName(info.Kind)].since(at, chunk.Revision)
	if !ok {
		return nil, false
	}
	items := chunk.Items
	for _, e := range slices.Backward(events) {
		key := state.ObjectKey{Resource: resourceName(info.Kind), Namespace: e.namespace, Name: e.name}
		beyond := chunk.Next != "" && byName(key, chunk.Items[len(chunk.Items)-1].Key) > 0
		before := from.Start != "" && byName(key, state.ObjectKey{Namespace: from.Namespace, Name: from.Name}) <= 0
		if beyond || before || info.Namespace != "" && e.namespace != info.Namespace {
			continue
		}
		i, present := slices.BinarySearchFunc(items, key, func(o state.Object, k state.ObjectKey) int { return byName(o.Key, k) })
		switch {
		case e.kind == added && present:
			items = slices.Delete(slices.Clone(items), i, i+1)
		case e.kind == deleted && !present:
			items = slices.Insert(slices.Clone(items), i, state.Object{Key: key, Data: e.previous})
		case e.kind == modified && present:
			items = slices.Clone(items)
			items[i].Data = e.previous
		}
	}
	return items, true
}

// byName compares keys in the order of lists.
func byName(a, b state.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// expiredList returns the 410 error. It carries a token with which a client can
// continue with the current objects.
func expiredList(o listOptions, from listToken) error {
	if o.Continue == "" {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	from.Revision = -1
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response " +
		"to retrieve the remainder of the results. " +
		"Continuing with the provided token results in an inconsistent list - " +
		"objects that were created, modified, or deleted between the time " +
		"the first chunk was returned and now may show up in the list.")
	err.ErrStatus.Continue = from.encode()
	return err
}

// tooLarge returns the error for a revision that the server has not reached.
func (s *Server) tooLarge(revision uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, s.seen()), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// listOptions are the parameters of list, watch and deletecollection.
type listOptions struct {
	Select        selection
	Version       string // resourceVersion as sent
	Match         metav1.ResourceVersionMatch
	Limit         int64
	Continue      string
	Timeout       time.Duration // 0 = none
	Bookmarks     bool
	InitialEvents *bool // sendInitialEvents as sent, or true where a watch begins with "any" version
}

// revision is the parsed resourceVersion; given is false for "" and "0".
func (o listOptions) revision() (revision uint64, given bool, err error) {
	if o.Version == "" || o.Version == "0" {
		return 0, false, nil
	}
	revision, err = parseRevision(o.Version)
	return revision, err == nil, err
}

// listParameters reads and checks the parameters. Contradictions are 422 status
// errors, malformed values 400.
func listParameters(q url.Values, k api.Kind, name string, watching bool) (listOptions, error) {
	o := listOptions{
		Version:   q.Get("resourceVersion"),
		Match:     metav1.ResourceVersionMatch(q.Get("resourceVersionMatch")),
		Continue:  q.Get("continue"),
		Bookmarks: flagOf(q, "allowWatchBookmarks"),
	}
	var err error
	if o.Limit, err = number(q, "limit"); err != nil {
		return o, err
	}
	seconds, err := number(q, "timeoutSeconds")
	if err != nil {
		return o, err
	}
	o.Timeout = time.Duration(seconds) * time.Second
	if _, ok := q["sendInitialEvents"]; ok {
		send := flagOf(q, "sendInitialEvents")
		o.InitialEvents = &send
	}
	if errs := o.check(watching); len(errs) > 0 {
		return o, apierrors.NewInvalid(schema.GroupKind{Group: metaGroup, Kind: "ListOptions"}, "", errs)
	}
	if watching && o.InitialEvents == nil && o.Match == "" && (o.Version == "" || o.Version == "0") {
		send := true
		o.InitialEvents = &send
	}
	o.Select, err = parseSelection(k, q.Get("labelSelector"), q.Get("fieldSelector"), name)
	return o, err
}

// check applies the rules of the real server for parameters that exclude each
// other.
func (o listOptions) check(watching bool) (errs field.ErrorList) {
	match, initial := field.NewPath("resourceVersionMatch"), field.NewPath("sendInitialEvents")
	const notOlder = metav1.ResourceVersionMatchNotOlderThan
	if !watching {
		if o.InitialEvents != nil {
			errs = append(errs, field.Forbidden(initial, "sendInitialEvents is forbidden for list"))
		}
		if o.Match == "" {
			return errs
		}
		if o.Version == "" {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
		}
		if o.Continue != "" {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
		}
		if o.Match != metav1.ResourceVersionMatchExact && o.Match != notOlder {
			known := []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, notOlder, ""}
			errs = append(errs, field.NotSupported(match, o.Match, known))
		}
		if o.Match == metav1.ResourceVersionMatchExact && o.Version == "0" {
			errs = append(errs, field.Forbidden(match, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
		}
		return errs
	}
	if o.InitialEvents != nil && o.Match != notOlder {
		errs = append(errs, field.Forbidden(match, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	}
	if o.Match != "" {
		if o.InitialEvents == nil {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
		}
		if o.Match != notOlder {
			errs = append(errs, field.NotSupported(match, o.Match, []metav1.ResourceVersionMatch{notOlder}))
		}
		if o.Continue != "" {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
		}
	}
	return errs
}

// selection picks objects by namespace, labels and fields. It works on stored
// bytes and reads only the members that it needs.
type selection struct {
	Namespace string // "" = all
	Labels    labels.Selector
	Fields    fields.Selector
}

// everything reports whether the selection has all objects of its namespace.
func (s selection) everything() bool { return s.Labels.Empty() && s.Fields.Empty() }

// parseSelection reads the selectors of a request. name is that of the path, for
// watches of one object. It returns a 400 status error for malformed selectors
// and for fields that the kind does not support.
func parseSelection(k api.Kind, labelSelector, fieldSelector, name string) (selection, error) {
	s := selection{Labels: labels.Everything(), Fields: fields.Everything()}
	var err error
	if labelSelector != "" {
		if s.Labels, err = labels.Parse(labelSelector); err != nil {
			return s, badRequest("%s", err)
		}
	}
	if fieldSelector != "" {
		if s.Fields, err = fields.ParseSelector(fieldSelector); err != nil {
			return s, badRequest("%s", err)
		}
		for _, r := range s.Fields.Requirements() {
			if fieldPath(k, r.Field) == nil {
				return s, badRequest("field label not supported: %s", r.Field)
			}
		}
	}
	if name == "" {
		return s, nil
	}
	if !s.Fields.Empty() {
		if value, ok := s.Fields.RequiresExactMatch("metadata.name"); !ok || value != name {
			return s, badRequest("fieldSelector metadata.name doesn't match requested name")
		}
		return s, nil
	}
	s.Fields = fields.OneTermEqualSelector("metadata.name", name)
	return s, nil
}

// fieldPath returns the member path of a supported field selector, else nil.
// Sources: Grafana's register.go for repositories, the core API for events and
// secrets (kubectl describe selects events by their object).
func fieldPath(k api.Kind, name string) []string {
	allowed := name == "metadata.name" || name == "metadata.namespace"
	switch {
	case allowed:
	case k.Group == api.ProvisioningGroup && k.Plural == "repositories":
		allowed = name == "spec.connection.name"
	case k.Group == "" && k.Plural == "secrets":
		allowed = name == "type"
	case k.Group == "" && k.Plural == "events":
		if name == "source" {
			return []string{"source", "component"}
		}
		allowed = strings.HasPrefix(name, "involvedObject.") || name == "reason" || name == "type" || name == "reportingComponent"
	}
	if !allowed {
		return nil
	}
	return strings.Split(name, ".")
}

// exactName returns the name of a selection of a single object.
func (s selection) exactName() (string, bool) { return s.Fields.RequiresExactMatch("metadata.name") }

// matches reports whether the selection has an object of the kind, given in
// stored form.
func (s selection) matches(k api.Kind, data []byte) bool {
	if data == nil {
		return false
	}
	if s.Namespace != "" && text(data, find(data, "metadata", "namespace")) != s.Namespace {
		return false
	}
	if !s.Labels.Empty() && !s.Labels.Matches(labelsOf(data)) {
		return false
	}
	for _, r := range s.Fields.Requirements() {
		if got := fieldText(data, fieldPath(k, r.Field)); (got == r.Value) != (r.Operator != "!=") {
			return false
		}
	}
	return true
}

// fieldText returns a value as text, and the JSON of a value that is no string.
func fieldText(data []byte, path []string) string {
	place := find(data, path...)
	if place.found() && data[place.from] != '"' {
		return string(place.of(data))
	}
	return text(data, place)
}

// labelsOf reads the labels of a stored object.
func labelsOf(data []byte) labels.Set {
	out := labels.Set{}
	if place := find(data, "metadata", "labels"); place.found() {
		eachMember(data, place, func(key []byte, value span) bool {
			out[unquote([]byte(`"`+string(key)+`"`))] = text(data, value)
			return true
		})
	}
	return out
}
