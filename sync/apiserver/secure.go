package apiserver

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// A stored object never contains secret values. Two forms refer to them:
//
//	secure.<field>: {name: inline-...}    Repository, Connection; clients see the name and never the value
//	data.<key>: sealed:inline-...         core Secrets; clients see the value, as in Kubernetes
//
// The value itself is sealed in the state file, under a key that begins with
// the object that owns it, in the transaction that stores the object. A name is
// a keyed hash of owner, field and value: it reveals nothing, and the same value
// gives the same name, so that applying a file twice changes nothing.

const (
	inlinePrefix = "inline-"
	sealedPrefix = "sealed:"
	// sealKeyName holds the key of the hash of the names. Without the former key,
	// values that are applied again get new names; nothing else is lost.
	sealKeyName = "localapi/seal-key"
	sealKeySize = 32
)

// sealer makes the names of sealed values.
type sealer struct {
	mu  sync.Mutex // guards key
	key []byte
}

// owner is the object and the field that a sealed value belongs to.
type owner struct{ resource, namespace, name string }

func ownerOf(k api.Kind, namespace, name string) owner {
	return owner{resource: k.Group + "/" + k.Plural, namespace: namespace, name: name}
}

// entry is the key of a sealed value in the state file.
func (o owner) entry(inline string) string {
	return "secure/" + o.resource + "/" + o.namespace + "/" + o.name + "/" + inline
}

// inlineName returns the name of a value.
func (s *Server) inlineName(ctx context.Context, o owner, field string, value []byte) (string, error) {
	key, err := s.sealKey(ctx)
	if err != nil {
		return "", fmt.Errorf("open key of sealed values: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{o.resource, o.namespace, o.name, field} {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	mac.Write(value)
	return inlinePrefix + hex.EncodeToString(mac.Sum(nil)[:16]), nil
}

func (s *Server) sealKey(ctx context.Context) ([]byte, error) {
	s.seal.mu.Lock()
	defer s.seal.mu.Unlock()
	if s.seal.key != nil {
		return s.seal.key, nil
	}
	key, err := s.store.Secret(ctx, sealKeyName)
	if errors.Is(err, state.ErrNotFound) || err == nil && len(key) != sealKeySize {
		key = make([]byte, sealKeySize)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		err = s.store.PutSecret(ctx, sealKeyName, key)
	}
	if err != nil {
		return nil, err
	}
	s.seal.key = key
	return key, nil
}

// sealInline replaces the inline values of an object by their names and records
// the values to seal and to delete. Members that the request omits stay as they
// were: clients cannot read a value back to send it again.
func (s *Server) sealInline(ctx context.Context, r *admitRequest) error {
	stored := admission.SecureNames(r.Old)
	given, present := r.Object.Object["secure"].(map[string]any)
	if !present && len(stored) == 0 {
		delete(r.Object.Object, "secure")
		return nil
	}
	own := ownerOf(r.Kind, r.Namespace, r.Name)
	after, kept := map[string]any{}, map[string]bool{}
	keep := func(field, name string) {
		after[field] = map[string]any{"name": name}
		kept[name] = true
	}
	for field, name := range stored {
		if member, _ := given[field].(map[string]any); len(member) == 0 {
			keep(field, name)
		}
	}
	for field, value := range given {
		member, _ := value.(map[string]any)
		name, err := s.sealMember(ctx, r, own, field, member)
		if err != nil {
			return err
		}
		if name != "" {
			keep(field, name)
		}
	}
	delete(r.Object.Object, "secure")
	if len(after) > 0 {
		r.Object.Object["secure"] = after
	}
	ownNames(r.Object)
	return s.forgetOthers(ctx, r, own, kept)
}

// sealMember returns the new name of one member; "" for none.
func (s *Server) sealMember(ctx context.Context, r *admitRequest, own owner, field string, member map[string]any) (string, error) {
	if create, ok := member["create"].(string); ok {
		name, err := s.inlineName(ctx, own, field, []byte(create))
		if err != nil {
			return "", err
		}
		*r.Secrets = append(*r.Secrets, state.SecretWrite{Name: own.entry(name), Plain: []byte(create)})
		return name, nil
	}
	if remove, _ := member["remove"].(bool); remove {
		return "", nil
	}
	name, _ := member["name"].(string)
	if strings.HasPrefix(name, inlinePrefix) && name != admission.SecureNames(r.Old)[field] {
		r.warn("secure." + field + ".name: " + name + " is a sealed value of another object or server and cannot be used here; " +
			"give the value in secure." + field + ".create")
	}
	return name, nil
}

// sealData replaces the values of a core Secret by markers. r.Old is revealed.
func (s *Server) sealData(ctx context.Context, r *admitRequest) error {
	// Without the key, reads omit the old values: storing such an object would
	// lose them for good.
	if _, err := s.sealKey(ctx); err != nil {
		return fmt.Errorf("open key of sealed values: %w", err)
	}
	own := ownerOf(r.Kind, r.Namespace, r.Name)
	kept := map[string]bool{}
	data, _ := r.Object.Object["data"].(map[string]any)
	sealed := make(map[string]any, len(data))
	for key, value := range data {
		text, _ := value.(string)
		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return apierrors.NewBadRequest("data." + key + " is not base64") // refused by validation before
		}
		if len(plain) == 0 {
			sealed[key] = ""
			continue
		}
		name, err := s.inlineName(ctx, own, key, plain)
		if err != nil {
			return err
		}
		kept[name] = true
		sealed[key] = sealedPrefix + name
		*r.Secrets = append(*r.Secrets, state.SecretWrite{Name: own.entry(name), Plain: plain})
	}
	if data != nil {
		r.Object.Object["data"] = sealed
	}
	return s.forgetOthers(ctx, r, own, kept)
}

// forgetOthers records every sealed value of an object for deletion, except the kept
// ones. It lists the state file and not the old object, so that no value is left
// behind.
func (s *Server) forgetOthers(ctx context.Context, r *admitRequest, own owner, kept map[string]bool) error {
	if r.Old == nil && len(kept) == 0 {
		return nil
	}
	prefix := own.entry("")
	names, err := s.store.SecretNames(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list sealed values: %w", err)
	}
	for _, name := range names {
		if !kept[strings.TrimPrefix(name, prefix)] {
			*r.Secrets = append(*r.Secrets, state.SecretWrite{Name: name, Delete: true})
		}
	}
	return nil
}

// forgetAll records every sealed value of a deleted object for deletion.
func (s *Server) forgetAll(ctx context.Context, r *admitRequest) error {
	if !isSecret(r.Kind) && len(admission.SecureNames(r.Old)) == 0 {
		return nil
	}
	return s.forgetOthers(ctx, r, ownerOf(r.Kind, r.Namespace, r.Name), nil)
}

func isSecret(k api.Kind) bool { return k.Group == "" && k.Kind == "Secret" }

// lastApplied is the annotation in which kubectl keeps a copy of an applied file.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// dropLastApplied removes kubectl's copy of an applied file if it holds secret
// values or is malformed. kubectl warns at the next apply and continues.
func dropLastApplied(obj *unstructured.Unstructured) {
	annotations := obj.GetAnnotations()
	text, ok := annotations[lastApplied]
	if !ok {
		return
	}
	var applied struct {
		Secure map[string]map[string]any `json:"secure"`
	}
	secret := obj.GetAPIVersion() == "v1" && obj.GetKind() == "Secret" || json.Unmarshal([]byte(text), &applied) != nil
	for _, member := range applied.Secure {
		secret = secret || member["create"] != nil
	}
	if secret {
		delete(annotations, lastApplied)
		obj.SetAnnotations(annotations)
	}
}

// reveal returns the form of a stored object that clients receive. Only core
// Secrets differ. A value that was replaced since is returned as it is now. A
// value that cannot be opened is omitted: its Secret is deleted (an older event
// of a watch), or it was lost with a damaged file or a key, and the rest must
// stay readable, the object deletable. data is not changed; the result may be
// data itself.
func (s *Server) reveal(ctx context.Context, k api.Kind, data []byte) ([]byte, error) {
	if !isSecret(k) || !bytes.Contains(data, []byte(`"`+sealedPrefix+inlinePrefix)) {
		return data, nil
	}
	obj, err := decodeObject(data)
	if err != nil {
		return nil, err
	}
	own := ownerOf(k, obj.GetNamespace(), obj.GetName())
	values, _ := obj.Object["data"].(map[string]any)
	for key, value := range values {
		text, _ := value.(string)
		inline, isSealed := strings.CutPrefix(text, sealedPrefix)
		if !isSealed {
			continue
		}
		plain, err := s.openSealed(ctx, own, inline, func() (string, error) {
			now, err := s.store.Object(ctx, objectKey(k, own.namespace, own.name))
			if err != nil {
				return "", err
			}
			return strings.TrimPrefix(markerOf(now.Data, key), sealedPrefix), nil
		})
		if errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrSealed) || errors.Is(err, state.ErrCorrupt) {
			s.log.Debug("omit sealed value", "secret", own.namespace+"/"+own.name, "key", key, "err", err)
			delete(values, key)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open sealed value %s of secret %s/%s: %w", key, own.namespace, own.name, err)
		}
		values[key] = base64.StdEncoding.EncodeToString(plain)
	}
	return encodeObject(obj.Object)
}

// markerOf returns the marker under a key of a stored Secret.
func markerOf(stored []byte, key string) string {
	obj, err := decodeObject(stored)
	if err != nil {
		return ""
	}
	marker, _ := asMap(obj.Object["data"])[key].(string)
	return marker
}

// openSealed opens a sealed value. An object is read before its values, so a
// value may have been replaced in between: then openSealed opens the current
// name, which again returns.
func (s *Server) openSealed(ctx context.Context, own owner, inline string, again func() (string, error)) ([]byte, error) {
	for {
		plain, err := s.store.Secret(ctx, own.entry(inline))
		if !errors.Is(err, state.ErrNotFound) {
			return plain, err
		}
		now, againErr := again()
		if againErr != nil || now == inline || !strings.HasPrefix(now, inlinePrefix) {
			return nil, err
		}
		inline = now
	}
}

// SecretOf opens the sealed value secure.<field> of a Repository, for the agent
// in the same process. The error wraps state.ErrNotFound if there is no such
// repository or no such field, or if the field names a core Secret and not a
// sealed value.
func (s *Server) SecretOf(ctx context.Context, namespace, repository, field string) ([]byte, error) {
	return s.secretOf(ctx, "repositories", namespace, repository, field, "")
}

// SecretNamed is SecretOf for a caller that has just read the Repository, with
// this name in secure.<field>.name. It reads the Repository only when that value
// does not exist any more.
func (s *Server) SecretNamed(ctx context.Context, namespace, repository, field, name string) ([]byte, error) {
	return s.secretOf(ctx, "repositories", namespace, repository, field, name)
}

// IsSealed reports whether a name in secure.<field>.name is that of a sealed value. No
// Secret has such a name.
func IsSealed(name string) bool { return strings.HasPrefix(name, inlinePrefix) }

// ConnectionSecretOf is SecretOf for a Connection.
func (s *Server) ConnectionSecretOf(ctx context.Context, namespace, connection, field string) ([]byte, error) {
	return s.secretOf(ctx, "connections", namespace, connection, field, "")
}

func (s *Server) secretOf(ctx context.Context, plural, namespace, name, field, inline string) (plain []byte, err error) {
	k, _ := kindOf(api.ProvisioningGroup, plural)
	read := func() (string, error) {
		obj, err := s.getObject(ctx, k, namespace, name)
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w: %w", state.ErrNotFound, err)
		}
		return admission.SecureNames(obj)[field], err
	}
	if inline == "" {
		inline, err = read()
	}
	if err == nil && !IsSealed(inline) {
		err = state.ErrNotFound
	}
	if err == nil {
		plain, err = s.openSealed(ctx, ownerOf(k, namespace, name), inline, read)
	}
	if err != nil {
		return nil, fmt.Errorf("open secure value %s of %s %s/%s: %w", field, k.Singular, namespace, name, err)
	}
	return plain, nil
}

// ownNames converts the ownership of secure.<field>.create and .remove, which are
// not stored, to ownership of the name that is stored instead. Without it,
// appliers would conflict on a field that no object has.
func ownNames(obj *unstructured.Unstructured) {
	meta, _ := obj.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	secure, _ := obj.Object["secure"].(map[string]any)
	for i, entry := range entries {
		fields, _, _ := unstructured.NestedFieldNoCopy(asMap(entry), "fieldsV1", "f:secure")
		if len(asMap(fields)) == 0 {
			continue
		}
		own := runtime.DeepCopyJSON(asMap(entry))
		members := asMap(asMap(own["fieldsV1"])["f:secure"])
		for key, value := range members {
			member := asMap(value)
			if member == nil {
				continue
			}
			if _, given := member["f:create"]; given {
				member["f:name"] = map[string]any{}
			}
			delete(member, "f:create")
			delete(member, "f:remove")
			if secure[strings.TrimPrefix(key, "f:")] == nil && key != "." {
				delete(members, key)
			}
		}
		entries[i] = own
	}
}

// asMap returns a JSON value as an object; nil if it is none.
func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// A controller that mints a token writes it together with the status, to the
// status subresource. Grafana's API server accepts that, and this one does too; a
// plain Kubernetes API drops all but the status. The generation stays: the spec
// has not changed.

// inlineValued reports whether objects of a kind have secure values.
func inlineValued(k api.Kind) bool {
	return k.Group == api.ProvisioningGroup && (k.Kind == "Repository" || k.Kind == "Connection")
}

// statusValues returns the secure values that a write of the status creates or
// removes. It ignores all other members below secure.
func statusValues(k api.Kind, obj *unstructured.Unstructured) map[string]any {
	if !inlineValued(k) {
		return nil
	}
	out := map[string]any{}
	for name, value := range asMap(obj.Object["secure"]) {
		member := asMap(value)
		if _, given := member["create"]; given {
			out[name] = map[string]any{"create": member["create"]}
		} else if remove, _ := member["remove"].(bool); remove {
			out[name] = map[string]any{"remove": true}
		}
	}
	return out
}

// addStatusValues adds them to the stored ones.
func addStatusValues(obj *unstructured.Unstructured, brought map[string]any) {
	if len(brought) == 0 {
		return
	}
	secure := map[string]any{}
	maps.Copy(secure, asMap(obj.Object["secure"]))
	maps.Copy(secure, brought)
	obj.Object["secure"] = secure
}

// admitStatusValues validates and seals them.
func (s *Server) admitStatusValues(ctx context.Context, r *admitRequest) error {
	if len(statusValues(r.Kind, r.Object)) == 0 {
		return nil
	}
	if errs := admission.CheckSecure(r.Object, r.Old); len(errs) > 0 {
		return invalid(r.Kind, r.Name, errs)
	}
	if err := s.sealInline(ctx, r); err != nil {
		return internal(err)
	}
	keepTimes(r.Old, r.Object)
	return nil
}
