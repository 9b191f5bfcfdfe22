package ocirepository

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"limpet/sync/auth"
)

// The forms of signatures. Source: cosign, sigstore's bundle and DSSE.
const (
	bundleType     = "application/vnd.dev.sigstore.bundle.v0.3+json"
	payloadType    = "application/vnd.in-toto+json"
	signPredicate  = "https://sigstore.dev/cosign/sign/v1"
	simpleSigning  = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureField = "dev.cosignproject.cosign/signature"
	signatureKind  = "cosign container image signature"

	mostSignatures = 64 // that are read of one digest
)

// keys are public keys in DER, by the names of their files.
type keys map[string][]byte

// readKeys reads the *.pub of a Secret.
func (k *Kind) readKeys(ctx context.Context, namespace, name string) (keys, error) {
	found, err := k.o.Places.Named(ctx, namespace, name, "cosign.pub")
	if err != nil {
		return nil, err
	}
	out := keys{}
	for file, data := range found {
		if !strings.HasSuffix(file, ".pub") {
			continue
		}
		block, _ := pem.Decode(data)
		if block == nil {
			return nil, fmt.Errorf("secret %s/%s: %s is no PEM of a public key", namespace, name, file)
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("secret %s/%s: %s: %w", namespace, name, file, err)
		}
		if big, is := key.(*rsa.PublicKey); is && big.N.BitLen() > auth.MaxRSA {
			return nil, fmt.Errorf("secret %s/%s: %s is an RSA key of more than %d bits", namespace, name, file, auth.MaxRSA)
		}
		out[file] = block.Bytes
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("secret %s/%s has no key *.pub", namespace, name)
	}
	return out, nil
}

// signed returns the name of the key that has signed a message, "" for none.
func (k keys) signed(message, signature []byte) string {
	hash := sha256.Sum256(message)
	for _, name := range slices.Sorted(maps.Keys(k)) {
		ok := false
		key, _ := x509.ParsePKIXPublicKey(k[name]) // readKeys has
		switch key := key.(type) {
		case *ecdsa.PublicKey:
			ok = ecdsa.VerifyASN1(key, hash[:], signature)
		case *rsa.PublicKey:
			ok = rsa.VerifyPKCS1v15(key, crypto.SHA256, hash[:], signature) == nil
		case ed25519.PublicKey:
			ok = ed25519.Verify(key, message, signature)
		}
		if ok {
			return name
		}
	}
	return ""
}

// verify looks for a signature of the digest by one of the keys: bundles of cosign 3, then what
// cosign 2 writes. A server that cannot be asked for bundles does not hide the others.
func (u *upstream) verify(ctx context.Context) error {
	name, err := u.verifyBundles(ctx)
	if name == "" {
		var older error
		name, older = u.verifySimple(ctx)
		err = errors.Join(err, older)
	}
	if name != "" {
		u.verified = fmt.Sprintf("verified signature of revision %s", u.revision)
		return nil
	}
	where := u.spec.URL + "@" + string(u.found.Digest)
	if err != nil {
		return fmt.Errorf("no matching signatures were found for '%s': %w", where, err)
	}
	return fmt.Errorf("no matching signatures were found for '%s'", where)
}

// fallbackTag is the tag of what refers to a digest, where a registry has no API for that.
func fallbackTag(d digest.Digest) string { return d.Algorithm().String() + "-" + d.Encoded() }

// referrers returns the manifests that refer to the digest.
func (u *upstream) referrers(ctx context.Context) ([]ocispec.Descriptor, error) {
	all, err := u.from.Referrers(ctx, u.found, bundleType)
	if len(all) > 0 {
		return all, nil
	}
	var index ocispec.Index // of registries whose API fails, and of layouts that are a copy of one
	d, missing := u.from.Resolve(ctx, fallbackTag(u.found.Digest))
	if missing != nil {
		return nil, ignoreNotFound(err)
	}
	err = u.decode(ctx, d, &index)
	return index.Manifests, err
}

func ignoreNotFound(err error) error {
	if notFound(err) {
		return nil
	}
	return err
}

// verifyBundles returns the name of the key that has signed the digest in a bundle.
func (u *upstream) verifyBundles(ctx context.Context) (name string, err error) {
	all, err := u.referrers(ctx)
	for _, d := range all[:min(len(all), mostSignatures)] {
		var manifest ocispec.Manifest
		bad := u.decode(ctx, d, &manifest)
		if bad != nil || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != bundleType {
			err = errors.Join(err, bad)
			continue
		}
		body, bad := u.read(ctx, manifest.Layers[0])
		if name = u.keys.verifyBundle(body, u.found.Digest); name != "" {
			return name, nil
		}
		err = errors.Join(err, bad)
	}
	return "", err
}

// verifyBundle returns the name of the key that has signed a digest in a bundle, "" for none. A
// statement of the same key about something else, such as an attestation, is no signature.
func (k keys) verifyBundle(body []byte, d digest.Digest) string {
	var bundle struct {
		Envelope struct {
			Payload     []byte
			PayloadType string
			Signatures  []struct{ Sig []byte }
		} `json:"dsseEnvelope"`
	}
	var statement struct {
		Subject       []struct{ Digest map[string]string }
		PredicateType string
	}
	e := &bundle.Envelope
	if json.Unmarshal(body, &bundle) != nil || json.Unmarshal(e.Payload, &statement) != nil ||
		e.PayloadType != payloadType || statement.PredicateType != signPredicate {
		return ""
	}
	if !slices.ContainsFunc(statement.Subject, func(s struct{ Digest map[string]string }) bool {
		return s.Digest[d.Algorithm().String()] == d.Encoded()
	}) {
		return ""
	}
	message := fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(e.PayloadType), e.PayloadType, len(e.Payload))
	message = append(message, e.Payload...)
	for _, s := range e.Signatures {
		if name := k.signed(message, s.Sig); name != "" {
			return name
		}
	}
	return ""
}

// verifySimple returns the name of the key that has signed the digest in the form of cosign 2.
func (u *upstream) verifySimple(ctx context.Context) (name string, err error) {
	d, err := u.from.Resolve(ctx, fallbackTag(u.found.Digest)+".sig")
	if err != nil {
		return "", ignoreNotFound(err)
	}
	var manifest ocispec.Manifest
	err = u.decode(ctx, d, &manifest)
	for _, layer := range manifest.Layers[:min(len(manifest.Layers), mostSignatures)] {
		signature, bad := base64.StdEncoding.DecodeString(layer.Annotations[signatureField])
		if layer.MediaType != simpleSigning || bad != nil {
			continue
		}
		payload, bad := u.read(ctx, layer)
		err = errors.Join(err, bad)
		if name = u.keys.verifySimple(payload, signature, u.found.Digest); name != "" {
			return name, nil
		}
	}
	return "", err
}

// verifySimple returns the name of the key that has signed a digest in a payload, "" for none.
func (k keys) verifySimple(payload, signature []byte, d digest.Digest) string {
	var signed struct {
		Critical struct {
			Type  string
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			}
		}
	}
	if json.NewDecoder(bytes.NewReader(payload)).Decode(&signed) != nil || signed.Critical.Type != signatureKind ||
		signed.Critical.Image.Digest != string(d) {
		return ""
	}
	return k.signed(payload, signature)
}
