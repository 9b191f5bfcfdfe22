package manifests

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
)

// How an object is made as its file says: a three-way merge of the file, of what was applied of it
// before, and of the object of the server. Only the members that the file states are compared, and
// those that it stated before and does not any more are removed. What the server changes of them by
// itself is found by a dry run and is no difference.

// applied is what of an object was applied last. It is sealed in the state file: a secret value
// cannot be read back from every server, so its hash shows whether the value in the file has
// changed.
type applied struct {
	UID    types.UID         `json:"uid"`
	Object map[string]any    `json:"object"` // without secret values
	Secure map[string]string `json:"secure,omitempty"`
	URL    string            `json:"url,omitempty"` // as the server has written it
}

func (a applied) content() string {
	data, _ := json.Marshal(applied{Object: a.Object, Secure: a.Secure})
	out := applied{}
	_ = json.Unmarshal(data, &out)
	for _, note := range []string{api.AnnoManifest, api.AnnoManifestOwner} {
		unstructured.RemoveNestedField(out.Object, "metadata", "annotations", note)
	}
	data, _ = json.Marshal(out)
	return string(data)
}

// write is a change to be made.
type write struct {
	to      *unstructured.Unstructured
	live    *unstructured.Unstructured // nil = it is created
	applied applied
	again   bool // the same content was applied before
}

// errForeign means that an object has another owner.
type errForeign struct{ owner string }

func (e *errForeign) Error() string {
	return "conflict: the object is owned by the manifests of " + e.owner + " and is left alone; to take it over, remove its annotations " +
		api.AnnoManifest + " and " + api.AnnoManifestOwner
}

// owner returns the owner of an object that comes from a file; "" of one that does not.
func owner(obj *unstructured.Unstructured) string {
	file, by := api.Annotation(obj, api.AnnoManifest), api.Annotation(obj, api.AnnoManifestOwner)
	if file == "" {
		return ""
	}
	return cmp.Or(by, embeddedOwner)
}

// embeddedOwner is the owner of objects that the server of an embedded API applies itself.
const embeddedOwner = "the server itself"

// plan returns the write that an object needs, which a dry run has accepted; nil for none. Content
// that was applied before neither takes back an object that a user has released nor makes one of a
// transient kind again.
func (a *Applier) plan(ctx context.Context, file string, o *object) (*write, error) {
	want := o.DeepCopy()
	api.SetAnnotation(want, api.AnnoManifest, file)
	if a.owner != embeddedOwner {
		api.SetAnnotation(want, api.AnnoManifestOwner, a.owner)
	}
	before, err := a.before(ctx, o)
	if err != nil {
		return nil, err
	}
	w := &write{to: want, applied: sealable(want)}
	w.again = before.content() == w.applied.content()
	if w.again && slices.Contains(transient, o.kind.Plural) {
		return nil, nil
	}
	live, err := a.Client.Resource(o.resource()).Namespace(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return nil, err
	case live.GetDeletionTimestamp() != nil || w.again && owner(live) == "":
		return nil, nil
	case !slices.Contains([]string{"", a.owner, a.former}, owner(live)):
		if err := a.remember(ctx, o, before, applied{}); err != nil { // it is not ours: once released, it is taken over
			return nil, err
		}
		return nil, &errForeign{owner(live)}
	}
	if live != nil {
		if before.UID != live.GetUID() {
			before = applied{}
		}
		// The file says what version the spec is of.
		converted := kube.StoredVersion(live) != ""
		unstructured.RemoveNestedField(live.Object, "status", "conversion")
		w.live, w.to, w.applied.UID = live, live.DeepCopy(), live.GetUID()
		w.applied.URL = url(live)
		fresh := settle(want, live, before, w.applied.Secure)
		for _, field := range fresh {
			unstructured.RemoveNestedField(w.to.Object, "secure", field)
		}
		if !merge(w.to.Object, want.Object, before.Object) && !converted {
			o.version = live.GetResourceVersion()
			return nil, a.remember(ctx, o, before, w.applied)
		}
		planned, err := a.send(ctx, o, w, true)
		if err != nil {
			return nil, err
		}
		if !converted && same(planned, live) && !slices.ContainsFunc(fresh, func(field string) bool { return secureName(live, field) != "" }) {
			o.version = live.GetResourceVersion()
			return nil, a.remember(ctx, o, before, w.applied)
		}
		return w, nil
	}
	_, err = a.send(ctx, o, w, true)
	return w, err
}

// writeTries bounds how often a write that met another one is planned anew.
const writeTries = 4

// write makes a planned change.
func (a *Applier) write(ctx context.Context, file string, o *object, w *write) error {
	for n := 1; w != nil; n++ {
		made, err := a.send(ctx, o, w, false)
		switch {
		case err == nil:
			w.applied.UID, w.applied.URL = made.GetUID(), url(made)
			return a.remember(ctx, o, applied{}, w.applied)
		case n == writeTries || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && (w.live == nil || !apierrors.IsNotFound(err)):
			return err
		}
		if w, err = a.plan(ctx, file, o); err != nil {
			return err
		}
	}
	return nil
}

// send creates or updates an object. An update has the UID and the resourceVersion of what it is
// based on.
func (a *Applier) send(ctx context.Context, o *object, w *write, dry bool) (*unstructured.Unstructured, error) {
	objects := a.Client.Resource(o.resource()).Namespace(o.GetNamespace())
	var dryRun []string
	if dry {
		dryRun = []string{metav1.DryRunAll}
	}
	if w.live == nil {
		return objects.Create(ctx, w.to, metav1.CreateOptions{FieldManager: fieldManager, DryRun: dryRun, FieldValidation: a.Validation})
	}
	return objects.Update(ctx, w.to, metav1.UpdateOptions{FieldManager: fieldManager, DryRun: dryRun, FieldValidation: a.Validation})
}

// appliedName is the name of what was applied among the secrets of the state file.
func (a *Applier) appliedName(o *object) string {
	return "manifests/" + a.Server + "/" + o.kind.Plural + "." + o.kind.Group + "/" + o.GetNamespace() + "/" + o.GetName()
}

// before returns what was applied last of an object.
func (a *Applier) before(ctx context.Context, o *object) (out applied, err error) {
	data, err := a.Store.Secret(ctx, a.appliedName(o))
	if errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrSealed) {
		return out, nil
	}
	if err == nil && json.Unmarshal(data, &out) != nil {
		out = applied{}
	}
	return out, err
}

// remember keeps what is applied, unless it is what was before.
func (a *Applier) remember(ctx context.Context, o *object, before, now applied) error {
	old, _ := json.Marshal(before)
	data, err := json.Marshal(now)
	if err == nil && string(old) != string(data) {
		err = a.Store.PutSecret(ctx, a.appliedName(o), data)
	}
	return err
}

// sealable returns what is remembered of an object. It writes the text of a Secret as the server
// does.
func sealable(want *unstructured.Unstructured) applied {
	out := applied{Secure: map[string]string{}}
	if texts, _, _ := unstructured.NestedStringMap(want.Object, "stringData"); len(texts) > 0 {
		for name, value := range texts {
			_ = unstructured.SetNestedField(want.Object, base64.StdEncoding.EncodeToString([]byte(value)), "data", name)
		}
		delete(want.Object, "stringData")
	}
	for field, given := range members(want.Object["secure"]) {
		if value, is := members(given)["create"].(string); is {
			sum := sha256.Sum256([]byte(value))
			out.Secure[field] = hex.EncodeToString(sum[:])
		}
	}
	out.Object = want.DeepCopy().Object
	delete(out.Object, "secure")
	if want.GetKind() == "Secret" {
		for name := range members(out.Object["data"]) {
			members(out.Object["data"])[name] = nil
		}
	}
	return out
}

// settle leaves of the secret values of an object only those that have to be sent, and returns
// their fields: the value is another than before, the object has none, or the URL in the file or on
// the server is another than it was, for which a server demands it anew: the two differ by
// themselves, as Grafana adds ".git". A server that seals nothing has the value.
func settle(want, live *unstructured.Unstructured, before applied, now map[string]string) (fresh []string) {
	moved := url(want) != url(&unstructured.Unstructured{Object: before.Object}) || before.URL != "" && before.URL != url(live)
	for field, given := range members(want.Object["secure"]) {
		name := secureName(live, field)
		_, creates := now[field]
		switch remove, _ := members(given)["remove"].(bool); {
		case remove && name == "", creates && name != "" && before.Secure[field] == now[field] && !moved,
			reflect.DeepEqual(given, members(live.Object["secure"])[field]):
			delete(members(want.Object["secure"]), field)
		case creates || remove:
			fresh = append(fresh, field)
		}
	}
	return fresh
}

// secureName returns the name of a sealed value of an object, "" for none.
func secureName(obj *unstructured.Unstructured, field string) string {
	name, _, _ := unstructured.NestedString(obj.Object, "secure", field, "name")
	return name
}

// url returns the server that the secrets of a Repository or a Connection are for.
func url(obj *unstructured.Unstructured) string {
	spec := members(obj.Object["spec"])
	kind, _ := spec["type"].(string)
	return fmt.Sprint(spec["url"], members(spec[kind])["url"], members(spec[kind])["serverUrl"])
}

func members(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// merge gives live the members that want states, and takes those away that only before did. Lists
// are taken whole. It reports whether that changes live.
func merge(live, want, before map[string]any) (changed bool) {
	for name := range before {
		_, stays := want[name]
		if _, there := live[name]; there && !stays {
			delete(live, name)
			changed = true
		}
	}
	for name, value := range want {
		inner, isObject := value.(map[string]any)
		has, _ := live[name].(map[string]any)
		switch {
		case isObject && has != nil:
			changed = merge(has, inner, members(before[name])) || changed
		case isObject && len(inner) == 0, value == nil && live[name] == nil: // the server leaves it out
		case !reflect.DeepEqual(live[name], value):
			live[name], changed = value, true
		}
	}
	return changed
}

// same reports whether a dry run changes nothing: a controller may have written its status
// meanwhile.
func same(planned, live *unstructured.Unstructured) bool {
	strip := func(obj *unstructured.Unstructured) map[string]any {
		out := maps.Clone(obj.Object)
		meta := maps.Clone(members(out["metadata"]))
		for _, name := range []string{"resourceVersion", "managedFields", "generation"} {
			delete(meta, name)
		}
		out["metadata"] = meta
		delete(out, "status")
		return out
	}
	return reflect.DeepEqual(strip(planned), strip(live))
}
