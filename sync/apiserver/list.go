package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/state"
	"limpet/sync/api"
)

// The pages of a list have the revision of the first one, and the later ones show the
// objects of now. A client that watches from that revision sees every change in between.

// listPage is one page of a list, in stored and revealed form.
type listPage struct {
	items    [][]byte
	revision uint64
	next     string // token of the next page; "" = this is the last
}

// listToken is a position in a list.
type listToken struct {
	revision uint64 // of the first page
	start    string // of the state file
}

func parseToken(text string) (t listToken, err error) {
	revision, start, _ := strings.Cut(text, ".")
	t.start = start
	if t.revision, err = strconv.ParseUint(revision, 10, 64); err != nil || start == "" {
		return t, badRequest("continue key is not valid: %q", text)
	}
	return t, nil
}

func (c *call) list() error {
	o, err := listParameters(c.req.URL.Query(), c.target, false)
	if err != nil {
		return err
	}
	page, err := c.server.page(c.req.Context(), c.target, o)
	if err != nil {
		return err
	}
	return c.answerPage(page)
}

// page reads one page of a list, once the revision is reached that is asked for.
func (s *Server) page(ctx context.Context, t target, o listOptions) (out listPage, err error) {
	var from listToken
	switch {
	case o.Continue != "" && o.revision > 0:
		err = badRequest("specifying resource version is not allowed when using continue")
	case o.Continue != "":
		from, err = parseToken(o.Continue)
	default:
		err = s.feed.wait(ctx, o.revision)
	}
	if err != nil {
		return out, err
	}
	out.revision = from.revision
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0
	for {
		q := state.ObjectQuery{Resource: resourceName(t.kind), Namespace: t.namespace, After: from.start}
		if o.Limit > 0 {
			q.Limit = int(o.Limit) - len(out.items)
		}
		chunk, err := s.store.Objects(ctx, q)
		switch {
		case err != nil && from.start != "" && ctx.Err() == nil:
			return out, badRequest("continue key is not valid: %s", err)
		case err != nil:
			return out, err
		case exact && o.revision > 0 && o.revision != chunk.Revision:
			return out, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
		}
		out.revision = cmp.Or(out.revision, chunk.Revision)
		for _, item := range chunk.Items {
			if !o.matches(t, item.Data) {
				continue
			}
			data, err := s.reveal(ctx, t.kind, item.Data)
			if err != nil {
				return out, err
			}
			out.items = append(out.items, data)
		}
		if chunk.Next == "" {
			return out, nil
		}
		from = listToken{out.revision, chunk.Next}
		if o.Limit > 0 && len(out.items) >= int(o.Limit) {
			out.next = formatRevision(from.revision) + "." + from.start
			return out, nil
		}
	}
}

// listOptions are the parameters of list and watch.
type listOptions struct {
	metainternal.ListOptions
	revision uint64 // of ResourceVersion; 0 = any
}

// everything is the list of all objects of a target.
func everything() (o listOptions) {
	o.LabelSelector, o.FieldSelector = labels.Everything(), fields.Everything()
	return o
}

// listParameters reads and checks the parameters. Contradictions are 422 status
// errors, malformed values and selectors 400.
func listParameters(q url.Values, t target, watching bool) (o listOptions, err error) {
	var sent metav1.ListOptions
	err = metav1.Convert_url_Values_To_v1_ListOptions(&q, &sent, nil)
	if err == nil {
		err = metainternal.Convert_v1_ListOptions_To_internalversion_ListOptions(&sent, &o.ListOptions, nil)
	}
	if err != nil {
		return o, badRequest("%s", err)
	}
	o.Watch = watching
	metainternal.SetListOptionsDefaults(&o.ListOptions, true)
	if errs := validation.ValidateListOptions(&o.ListOptions, true); len(errs) > 0 {
		return o, apierrors.NewInvalid(metav1.Kind("ListOptions"), "", errs)
	}
	if o.revision, err = parseRevision(cmp.Or(o.ResourceVersion, "0")); err != nil {
		return o, err
	}
	for _, r := range o.FieldSelector.Requirements() {
		if fieldPath(t.kind, r.Field) == nil {
			return o, badRequest("field label not supported: %s", r.Field)
		}
	}
	return o, nil
}

// fieldPath returns the member path of a supported field selector, else nil. Sources: Grafana's
// registration for repositories, the core API for events and secrets (kubectl describe selects
// events by their object).
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

// matches reports whether the selectors and the namespace of a target select an
// object, given in stored form. It reads only the members that it needs.
func (o listOptions) matches(t target, data []byte) bool {
	if data == nil || t.namespace != "" && text(data, find(data, "metadata", "namespace")) != t.namespace {
		return false
	}
	if !o.LabelSelector.Empty() && !o.LabelSelector.Matches(labelsOf(data)) {
		return false
	}
	for _, r := range o.FieldSelector.Requirements() {
		place := find(data, fieldPath(t.kind, r.Field)...)
		got := text(data, place)
		if place.found() && data[place.from] != '"' {
			got = string(place.of(data)) // the JSON of a value that is no string
		}
		if (got == r.Value) != (r.Operator != "!=") {
			return false
		}
	}
	return true
}

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

func (c *call) answerPage(page listPage) error {
	meta := metav1.ListMeta{ResourceVersion: formatRevision(page.revision), Continue: page.next}
	for i, item := range page.items {
		page.items[i] = c.target.inVersion(item)
		if c.media.as == asMetadata || c.media.as == asMetaList {
			page.items[i] = metadataOf(c.media, item)
		}
	}
	if c.media.as == asTable {
		table, err := c.table(page.items)
		if err != nil {
			return err
		}
		table.ListMeta = meta
		c.server.answerAny(c.w, c.media, http.StatusOK, table)
		return nil
	}
	apiVersion, kind := c.target.apiVersion(), c.target.kind.Kind+"List"
	if c.media.as != "" {
		apiVersion, kind = c.media.metaVersion(), asMetaList
	}
	head, err := json.Marshal(struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Meta       metav1.ListMeta `json:"metadata"`
	}{apiVersion, kind, meta})
	if err != nil {
		return err
	}
	out := append(head[:len(head)-1], `,"items":[`...)
	out = append(out, bytes.Join(page.items, []byte(","))...)
	c.server.answerBytes(c.w, c.media, http.StatusOK, append(out, "]}"...))
	return nil
}
