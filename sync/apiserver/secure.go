package apiserver

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// Secret values never stand in a stored object. Two forms lead to them:
//
//	secure.<field>: {name: inline-...}    Repository, Connection; clients see the name and never the value
//	data.<key>: sealed:inline-...         core Secrets; answered with the value, as Kubernetes does
//
// The value itself is sealed in the state file, under a key that begins with
// the object that owns it, in the transaction that stores the object. A name is
// a keyed hash of owner, field and value: it tells nobody anything, and the
// same value given again gives the same object, so that applying a file twice
// changes nothing.

const (
	inlinePrefix = "inline-"
	sealedPrefix = "sealed:"
	// sealKeyName holds the key of the hash behind the names. Losing it only
	// means that values given again get new names.
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

// inlineName names a value.
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

// sealInline replaces the inline values of an object by their names and notes
// what to seal and what to forget. Members that the request leaves out stay as
// they were: clients cannot read a value back to send it again.
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

// sealMember answers the name that one member has from now on; "" for none.
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
		r.warn("secure." + field + ".name: " + name + " is a sealed value of another object or server and cannot be used here; give the value in secure." + field + ".create")
	}
	return name, nil
}

// sealData replaces the values of a core Secret by markers. r.Old is revealed.
func (s *Server) sealData(ctx context.Context, r *admitRequest) error {
	// Without the key the old values were left out of what the client read:
	// storing that would lose them for good.
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

// forgetOthers notes every sealed value of an object for deletion, but those that are
// kept. It goes by what is in the state file and not by the old object, so that
// nothing is left behind there.
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

// forgetAll notes every sealed value of an object that leaves the store.
func (s *Server) forgetAll(ctx context.Context, r *admitRequest) error {
	if !isSecret(r.Kind) && len(admission.SecureNames(r.Old)) == 0 {
		return nil
	}
	return s.forgetOthers(ctx, r, ownerOf(r.Kind, r.Namespace, r.Name), nil)
}

func isSecret(k api.Kind) bool { return k.Group == "" && k.Kind == "Secret" }

// lastApplied is the annotation in which kubectl keeps the file that it applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// dropLastApplied removes kubectl's copy of an applied file that holds secret
// values, or that cannot be read. kubectl warns at the next apply and goes on.
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
