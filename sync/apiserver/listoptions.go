package apiserver

import (
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// listOptions are the parameters of list, watch and deletecollection.
type listOptions struct {
	Select        selection
	Version       string // resourceVersion as given
	Match         metav1.ResourceVersionMatch
	Limit         int64
	Continue      string
	Timeout       time.Duration // 0 = not given
	Bookmarks     bool
	InitialEvents *bool // sendInitialEvents as given, or true where a watch begins with "any" version
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
// errors, values that cannot be read 400.
func listParameters(q url.Values, k api.Kind, name string, watching bool) (listOptions, error) {
	o := listOptions{Version: q.Get("resourceVersion"), Match: metav1.ResourceVersionMatch(q.Get("resourceVersionMatch")),
		Continue: q.Get("continue"), Bookmarks: flagOf(q, "allowWatchBookmarks")}
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
			errs = append(errs, field.NotSupported(match, o.Match, []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, notOlder, ""}))
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
