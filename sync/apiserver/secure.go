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
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// A stored object never contains secret values. Two forms refer to them:
//
//	secure.<field>: {name: inline-...}    Repository, Connection; clients see the name, an agent reads the value as a core Secret
//	data.<key>: sealed:inline-...         core Secrets; clients see the value, as in Kubernetes
//
// The value itself is sealed in the state file, under a key that begins with the object that owns
// it, in the transaction that stores the object. A name is a keyed hash of owner, field and value:
// it reveals nothing, and the same value gives the same name, so that applying a file twice changes
// nothing.

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

// ownerOf returns the prefix of the keys of the sealed values of an object in the state file; a
// name completes it.
func ownerOf(t target) string {
	return "secure/" + resourceName(t.kind) + "/" + t.namespace + "/" + t.name + "/"
}

// sealValue records a value of a plan to be sealed and returns its name.
func (s *Server) sealValue(ctx context.Context, p *plan, field string, value []byte) (string, error) {
	key, err := s.sealKey(ctx)
	if err != nil {
		return "", fmt.Errorf("open key of sealed values: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{resourceName(p.target.kind), p.target.namespace, p.target.name, field} {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	mac.Write(value)
	name := inlinePrefix + hex.EncodeToString(mac.Sum(nil)[:16])
	p.secrets = append(p.secrets, state.SecretWrite{Name: ownerOf(p.target) + name, Plain: value})
	return name, nil
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

// sealInline replaces the inline values of an object by their names and records the values to seal
// and to delete. Members that the request omits stay as they were: clients cannot read a value back
// to send it again.
func (s *Server) sealInline(ctx context.Context, p *plan) error {
	stored := admission.SecureNames(p.old)
	given := asMap(p.object.Object["secure"])
	delete(p.object.Object, "secure")
	if given == nil && len(stored) == 0 {
		return nil
	}
	after := map[string]any{}
	for field, name := range stored {
		if len(asMap(given[field])) == 0 {
			after[field] = map[string]any{"name": name}
		}
	}
	for field, value := range given {
		name, err := s.sealMember(ctx, p, field, asMap(value), stored[field])
		if err != nil {
			return err
		}
		if name != "" {
			after[field] = map[string]any{"name": name}
		}
	}
	if len(after) > 0 {
		p.object.Object["secure"] = after
	}
	ownNames(p.object)
	kept := map[string]bool{}
	for _, member := range after {
		kept[asMap(member)["name"].(string)] = true
	}
	return s.forgetOthers(ctx, p, kept)
}

// sealMember returns the new name of one member; "" for none.
func (s *Server) sealMember(ctx context.Context, p *plan, member string, given map[string]any, stored string) (string, error) {
	if create, ok := given["create"].(string); ok {
		return s.sealValue(ctx, p, member, []byte(create))
	}
	if remove, _ := given["remove"].(bool); remove {
		return "", nil
	}
	name, _ := given["name"].(string)
	if IsSealed(name) && name != stored { // agents in other processes read it by that name
		return "", p.invalid(field.ErrorList{field.Invalid(field.NewPath("secure", member, "name"), name,
			"is a sealed value of another object or server; give the value in secure."+member+".create")})
	}
	return name, nil
}

// sealData replaces the values of a core Secret by markers.
func (s *Server) sealData(ctx context.Context, p *plan) error {
	// Without the key, reads omit the old values: storing such an object would lose them for good.
	if _, err := s.sealKey(ctx); err != nil {
		return fmt.Errorf("open key of sealed values: %w", err)
	}
	kept := map[string]bool{}
	data := asMap(p.object.Object["data"])
	sealed := make(map[string]any, len(data))
	for key, value := range data {
		text, _ := value.(string)
		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return badRequest("data.%s is not base64", key) // refused by validation before
		}
		if sealed[key] = ""; len(plain) == 0 {
			continue
		}
		name, err := s.sealValue(ctx, p, key, plain)
		if err != nil {
			return err
		}
		kept[name] = true
		sealed[key] = sealedPrefix + name
	}
	if data != nil {
		p.object.Object["data"] = sealed
	}
	return s.forgetOthers(ctx, p, kept)
}

// forgetOthers records every sealed value of an object for deletion, except the kept ones. It lists
// the state file and not the old object, so that no value is left behind.
func (s *Server) forgetOthers(ctx context.Context, p *plan, kept map[string]bool) error {
	if p.old == nil && len(kept) == 0 {
		return nil
	}
	prefix := ownerOf(p.target)
	names, err := s.store.SecretNames(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list sealed values: %w", err)
	}
	for _, name := range names {
		if !kept[strings.TrimPrefix(name, prefix)] {
			p.secrets = append(p.secrets, state.SecretWrite{Name: name, Delete: true})
		}
	}
	return nil
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

// reveal returns the form of a stored object that clients receive. Only core Secrets differ. A
// value that was replaced since is returned as it is now. A value that cannot be opened is omitted:
// its Secret is deleted (an older event of a watch), or it was lost with a damaged file or a key,
// and the rest must stay readable, the object deletable. data is not changed; the result may be
// data itself.
func (s *Server) reveal(ctx context.Context, k api.Kind, data []byte) ([]byte, error) {
	if !isSecret(k) || !bytes.Contains(data, []byte(`"`+sealedPrefix+inlinePrefix)) {
		return data, nil
	}
	obj, err := decodeObject(data)
	if err != nil {
		return nil, err
	}
	t := target{kind: k, namespace: obj.GetNamespace(), name: obj.GetName()}
	values := asMap(obj.Object["data"])
	for key, value := range values {
		marker, _ := value.(string)
		inline, isSealed := strings.CutPrefix(marker, sealedPrefix)
		if !isSealed {
			continue
		}
		plain, err := s.openSealed(ctx, t, inline, func() (string, error) {
			now, err := s.store.Object(ctx, t.key())
			return strings.TrimPrefix(text(now.Data, find(now.Data, "data", key)), sealedPrefix), err
		})
		if errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrSealed) || errors.Is(err, state.ErrCorrupt) {
			s.log.Debug("omit sealed value", "secret", t.namespace+"/"+t.name, "key", key, "err", err)
			delete(values, key)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open sealed value %s of secret %s/%s: %w", key, t.namespace, t.name, err)
		}
		values[key] = base64.StdEncoding.EncodeToString(plain)
	}
	return encodeObject(obj.Object)
}

// openSealed opens a sealed value. An object is read before its values, so a value may have been
// replaced in between: then openSealed opens the current name, which again returns.
func (s *Server) openSealed(ctx context.Context, t target, inline string, again func() (string, error)) ([]byte, error) {
	for {
		plain, err := s.store.Secret(ctx, ownerOf(t)+inline)
		if !errors.Is(err, state.ErrNotFound) {
			return plain, err
		}
		now, againErr := again()
		if againErr != nil || now == inline || !IsSealed(now) {
			return nil, err
		}
		inline = now
	}
}

// IsSealed reports whether a name in secure.<field>.name is that of a sealed value. No Secret has
// such a name.
func IsSealed(name string) bool { return strings.HasPrefix(name, inlinePrefix) }

// SecretOf opens the sealed value secure.<field> of one of the "repositories" or "connections", for
// the agent in the same process. inline is the name in secure.<field>.name for a caller that has
// just read the object, else "": it saves a read. The error wraps state.ErrNotFound if there is no
// such object or no such field, or if the field names a core Secret and not a sealed value.
func (s *Server) SecretOf(ctx context.Context, plural, namespace, name, field, inline string) (plain []byte, err error) {
	t := target{namespace: namespace}.of(plural)
	t.name = name
	read := func() (string, error) {
		cur, err := s.read(ctx, t)
		if err == nil && cur.object == nil {
			err = fmt.Errorf("%w: %w", state.ErrNotFound, t.notFound())
		}
		return admission.SecureNames(cur.object)[field], err
	}
	if inline == "" {
		inline, err = read()
	}
	if err == nil && !IsSealed(inline) {
		err = state.ErrNotFound
	}
	if err == nil {
		plain, err = s.openSealed(ctx, t, inline, read)
	}
	if err != nil {
		return nil, fmt.Errorf("open secure value %s of %s %s/%s: %w", field, t.kind.Singular, namespace, name, err)
	}
	return plain, nil
}

// sealedSecret returns the sealed value of a name as a core Secret whose key is its field: an agent
// in another process reads what secure.<field>.name names. No list and no watch has it. It has no
// version, because another value has another name. The error is a 404 status error when there is
// none.
func (s *Server) sealedSecret(ctx context.Context, t target) ([]byte, error) {
	for _, plural := range []string{"repositories", "connections"} {
		all := target{namespace: t.namespace}.of(plural)
		names, err := s.store.SecretNames(ctx, strings.TrimSuffix(ownerOf(all), "/"))
		if err != nil {
			return nil, fmt.Errorf("list sealed values: %w", err)
		}
		i := slices.IndexFunc(names, func(name string) bool { return path.Base(name) == t.name })
		if i < 0 {
			continue
		}
		all.name = path.Base(path.Dir(names[i]))
		owner, err := s.read(ctx, all)
		if err != nil {
			return nil, err
		}
		for field, inline := range admission.SecureNames(owner.object) {
			if inline != t.name {
				continue
			}
			plain, err := s.store.Secret(ctx, names[i])
			if err != nil {
				return nil, fmt.Errorf("open secure value %s of %s: %w", field, all.name, err)
			}
			secret := t.empty()
			secret.SetNamespace(t.namespace)
			secret.SetName(t.name)
			secret.Object["type"] = "Opaque"
			secret.Object["data"] = map[string]any{field: base64.StdEncoding.EncodeToString(plain)}
			return encodeObject(secret.Object)
		}
	}
	return nil, t.notFound()
}

// ownNames converts the ownership of secure.<field>.create and .remove, which are not stored, to
// ownership of the name that is stored instead. Without it, appliers would conflict on a field that
// no object has.
func ownNames(obj *unstructured.Unstructured) {
	entries, _ := asMap(obj.Object["metadata"])["managedFields"].([]any)
	secure := asMap(obj.Object["secure"])
	for i, entry := range entries {
		if asMap(asMap(entry)["fieldsV1"])["f:secure"] == nil {
			continue
		}
		own := runtime.DeepCopyJSON(asMap(entry))
		members := asMap(asMap(own["fieldsV1"])["f:secure"])
		for key, value := range members {
			member := asMap(value)
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

// hasSecure reports whether objects of a kind have secure values.
func hasSecure(k api.Kind) bool {
	return k.Group == api.ProvisioningGroup && (k.Kind == "Repository" || k.Kind == "Connection")
}

// statusValues returns the secure values that a write of the status creates or
// removes. It ignores all other members below secure.
//
// A controller that mints a token writes it together with the status, to the status subresource.
// Grafana's API server accepts that, and this one does too; a plain Kubernetes API drops all but
// the status. The generation stays: the spec has not changed.
func statusValues(k api.Kind, obj *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for name, value := range asMap(obj.Object["secure"]) {
		member := asMap(value)
		if create, given := member["create"]; given && hasSecure(k) {
			out[name] = map[string]any{"create": create}
		} else if remove, _ := member["remove"].(bool); remove && hasSecure(k) {
			out[name] = map[string]any{"remove": true}
		}
	}
	return out
}
