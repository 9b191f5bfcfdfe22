package apiserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/admission"
)

// reveal turns the stored form of an object into the answered one. Only core
// Secrets differ. A value that was replaced since is answered as it is now. One
// that cannot be opened is left out: its Secret is gone (of an older event of a
// watch), or it was lost with a damaged file or a key, and the rest must stay
// readable, the object deletable. data is not changed; the answer may be data
// itself.
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
			s.log.Debug("leave out sealed value", "secret", own.namespace+"/"+own.name, "key", key, "err", err)
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

// markerOf reads what stands under a key of a stored Secret.
func markerOf(stored []byte, key string) string {
	obj, err := decodeObject(stored)
	if err != nil {
		return ""
	}
	marker, _ := asMap(obj.Object["data"])[key].(string)
	return marker
}

// openSealed opens a sealed value. An object is read before its values, so that
// a value may be replaced in between: then again tells the name that the object
// has now, and that one is opened.
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
// in the same process. The error is state.ErrNotFound (in its chain) if there is
// no such repository, no such field, or a name there that leads to a core Secret
// and not to a sealed value.
func (s *Server) SecretOf(ctx context.Context, namespace, repository, field string) ([]byte, error) {
	return s.secretOf(ctx, "repositories", namespace, repository, field, "")
}

// SecretNamed is SecretOf for who has seen the Repository a moment ago, with this
// name in secure.<field>.name. The Repository is read only when that value is not
// there any more.
func (s *Server) SecretNamed(ctx context.Context, namespace, repository, field, name string) ([]byte, error) {
	return s.secretOf(ctx, "repositories", namespace, repository, field, name)
}

// IsSealed says that a name in secure.<field>.name is that of a sealed value, which
// no Secret has.
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
