package ocirepository_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"limpet/sync/source"
	"limpet/sync/testenv/sourcetest"
)

// signer is a key of cosign.
type signer struct {
	t   *testing.T
	key *ecdsa.PrivateKey
}

func newSigner(t *testing.T) signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{t, key}
}

func (s signer) public() string {
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func (s signer) sign(message []byte) string {
	sum := sha256.Sum256(message)
	signature, err := ecdsa.SignASN1(rand.Reader, s.key, sum[:])
	if err != nil {
		s.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature)
}

// older adds a signature of signed to what stands at the tag of a digest, as cosign 2 does.
func (s signer) older(h *sourcetest.Registry, digest, signed string) {
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":%q},`+
		`"type":"cosign container image signature"},"optional":null}`, signed)
	layer := h.Blob("application/vnd.dev.cosign.simplesigning.v1+json", payload)
	layer.Annotations = map[string]string{"dev.cosignproject.cosign/signature": s.sign(payload)}
	h.Push(ocispec.Manifest{Layers: []ocispec.Descriptor{layer}}, strings.Replace(digest, ":", "-", 1)+".sig")
}

// bundle adds a bundle as cosign 3 does where a registry has no API for referrers.
func (s signer) bundle(h *sourcetest.Registry, of, signed, predicate string) {
	const kind, media = "application/vnd.in-toto+json", "application/vnd.dev.sigstore.bundle.v0.3+json"
	payload := fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`,
		strings.TrimPrefix(signed, "sha256:"), predicate)
	message := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload)
	body, _ := json.Marshal(map[string]any{"mediaType": media, "dsseEnvelope": map[string]any{"payload": payload, "payloadType": kind,
		"signatures": []any{map[string]any{"sig": s.sign(message)}}}})
	made := h.Push(ocispec.Manifest{ArtifactType: media, Layers: []ocispec.Descriptor{h.Blob(media, body)}})
	index, _ := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{made}})
	h.Set(func() {
		h.Manifests[strings.Replace(of, ":", "-", 1)], h.Manifests[string(digest.FromBytes(index))] = index, index
	})
}

const signPredicate = "https://sigstore.dev/cosign/sign/v1"

// TestSignatures: a signature of the digest by any of the keys counts, and no other.
func TestSignatures(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	mine, other := newSigner(t), newSigner(t)
	r.Secret("keys", map[string]any{"cosign.pub": newSigner(t).public(), "second.pub": mine.public()})
	good, _ := release(h, map[string]string{"a": "good"}, "elsewhere")
	for tag, c := range map[string]struct {
		sign  func(digest string)
		valid bool
	}{
		"older":      {func(d string) { mine.older(h, d, d) }, true},
		"bundle":     {func(d string) { mine.bundle(h, d, d, signPredicate) }, true},
		"none":       {func(string) {}, false},
		"othersold":  {func(d string) { other.older(h, d, d) }, false},
		"others":     {func(d string) { other.bundle(h, d, d, signPredicate) }, false},
		"copiedold":  {func(d string) { mine.older(h, d, good) }, false},
		"copied":     {func(d string) { mine.bundle(h, d, good, signPredicate) }, false},
		"attestated": {func(d string) { mine.bundle(h, d, d, "https://slsa.dev/provenance/v1") }, false},
	} {
		revision, _ := release(h, map[string]string{"a": tag}, tag)
		c.sign(revision)
		r.Apply(tag, `"ref":{"tag":"`+tag+`"},"verify":{"provider":"cosign","secretRef":{"name":"keys"}}`)
		if c.valid {
			r.Ready(tag, tag+"@"+revision)
			continue
		}
		if s := r.In(tag, source.Failed, "VerificationError"); s.Artifact != nil {
			t.Errorf("%s: %+v", tag, s)
		}
	}
	// Another key verifies again: the artifact stays, and the source is not ready.
	r.Secret("keys", map[string]any{"cosign.pub": other.public(), "second.pub": other.public()})
	if s := r.In("bundle", source.Failed, "VerificationError"); s.Artifact == nil {
		t.Errorf("the last good artifact is gone: %+v", s)
	}
}
