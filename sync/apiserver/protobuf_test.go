package apiserver

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobufSecret writes a Secret as "kubectl create secret generic" does.
func protobufSecret(t testing.TB, name string, data map[string]string) []byte {
	t.Helper()
	bytesField := func(to []byte, number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
	}
	meta, err := (&metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	raw := bytesField(nil, secretMetadata, meta)
	for key, value := range data {
		raw = bytesField(raw, secretDataField, bytesField(bytesField(nil, 1, []byte(key)), 2, []byte(value)))
	}
	raw = bytesField(raw, secretType, []byte("Opaque"))
	raw = protowire.AppendVarint(protowire.AppendTag(raw, secretImmutable, protowire.VarintType), 1)
	raw = protowire.AppendFixed64(protowire.AppendTag(raw, 99, protowire.Fixed64Type), 7) // of a newer version
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), body...)
}

func TestSecretByProtobuf(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = "/api/v1/namespaces/default/secrets"
	body := mediaProtobuf + " " + string(protobufSecret(t, "s", map[string]string{"token": canaryOne, "empty": ""}))
	rec := s.send("POST", path, body, nil)
	var secret map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &secret); err != nil || rec.Code != http.StatusCreated {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	got := s.must("GET", secretPath, "")
	if compact(t, got["data"]) != `{"empty":"","token":"Y2FuYXJ5LW9uZS01YjFm"}` || got["immutable"] != true || at(got, "metadata", "labels", "a") != "b" {
		t.Errorf("secret %v", got)
	}
	s.canary(canaryOne, "Y2FuYXJ5LW9uZS01YjFm")
	for what, body := range map[string]string{"empty": "", "no magic": "abc", "cut off": string(protobufSecret(t, "x", map[string]string{"a": canaryTwo})[:40])} {
		rec := s.send("POST", path, "", func(r *http.Request) {
			r.Header.Set("Content-Type", mediaProtobuf)
			r.Body = http.NoBody
			if body != "" {
				r.Body = readCloser{strings.NewReader(body)}
			}
		})
		if rec.Code != http.StatusBadRequest || strings.Contains(rec.Body.String(), canaryTwo) {
			t.Errorf("%s: %d %s", what, rec.Code, rec.Body)
		}
	}
	if rec := s.send("POST", base+"jobs", body, nil); rec.Code != http.StatusUnsupportedMediaType {
		t.Errorf("another kind: %d %s", rec.Code, rec.Body)
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// FuzzProtobuf: no body makes the reader fall over, and what it reads is an
// object.
func FuzzProtobuf(f *testing.F) {
	f.Add(protobufSecret(f, "s", map[string]string{"a": "b"}))
	f.Add([]byte("k8s\x00"))
	f.Add([]byte("k8s\x00\x12\x02\x0a\x7f"))
	f.Fuzz(func(t *testing.T, body []byte) {
		out, err := secretFromProtobuf(body)
		if err == nil && !json.Valid(out) {
			t.Errorf("%q", out)
		}
	})
}
