package apiserver

import (
	"errors"
	"strings"
	"testing"

	"limpet/state"
)

// TestSecureValuesOfStatus: a write of the status takes secure values, as Grafana's
// server does, and nothing else beside the status. It is no change of what a person
// wants, and the value is sealed like any other.
func TestSecureValuesOfStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path, status = base + "repositories/dashboards", base + "repositories/dashboards/status"
	const jsonPatch = "application/json-patch+json "
	made := s.must("POST", base+"repositories", repositoryJSON(`{}`))
	one := s.must("PATCH", status, jsonPatch+`[{"op":"test","path":"/metadata/resourceVersion","value":"`+at(made, "metadata", "resourceVersion").(string)+`"},
		{"op":"add","path":"/status","value":{"token":{"lastUpdated":1}}},{"op":"add","path":"/spec/title","value":"no"},
		{"op":"add","path":"/secure","value":{}},{"op":"add","path":"/secure/token","value":{"create":"`+canaryOne+`"}}]`)
	first := s.inlineOf(one)
	if s.token() != canaryOne || at(one, "spec", "title") != "Dashboards" || at(one, "status", "token", "lastUpdated") != float64(1) {
		t.Errorf("token %q, answered %v", s.token(), one)
	}
	if at(one, "metadata", "generation") != at(made, "metadata", "generation") {
		t.Error("a token is no change of the spec")
	}
	again := s.must("PATCH", status, jsonPatch+`[{"op":"add","path":"/secure/token","value":{"create":"`+canaryOne+`"}}]`)
	if at(again, "metadata", "resourceVersion") != at(one, "metadata", "resourceVersion") {
		t.Error("the same token again is a change")
	}
	two := s.must("PATCH", status, jsonPatch+`[{"op":"add","path":"/secure/token","value":{"create":"`+canaryTwo+`"}},{"op":"add","path":"/secure/webhookSecret","value":{"create":"`+canaryOne+`"}}]`)
	if s.inlineOf(two) == first || s.token() != canaryTwo || len(s.sealedNames()) != 2 {
		t.Errorf("token %q, sealed %q", s.token(), s.sealedNames())
	}
	for _, c := range []struct {
		what, body string
		code       int
	}{
		{"a status that says nothing of secure", `[{"op":"add","path":"/status/token","value":{}}]`, 200},
		{"a removal of the member", `[{"op":"remove","path":"/secure/token"}]`, 200},
		{"the name of another", `[{"op":"add","path":"/secure/token","value":{"name":"inline-0"}}]`, 200},
		{"nonsense", `[{"op":"add","path":"/secure/token","value":["` + canaryOne + `"]}]`, 200},
		{"an empty value", `[{"op":"add","path":"/secure/token","value":{"create":""}}]`, 422},
		{"a value that is none", `[{"op":"add","path":"/secure/token","value":{"create":7}}]`, 422},
	} {
		if rec := s.send("PATCH", status, jsonPatch+c.body, nil); rec.Code != c.code {
			t.Errorf("%s: %d %s", c.what, rec.Code, rec.Body)
		}
		if s.token() != canaryTwo {
			t.Fatalf("%s: the token is %q", c.what, s.token())
		}
	}
	gone := s.must("PATCH", status, jsonPatch+`[{"op":"add","path":"/secure/webhookSecret","value":{"remove":true}}]`)
	if at(gone, "secure", "webhookSecret") != nil || len(s.sealedNames()) != 1 {
		t.Errorf("secure %v, sealed %q", gone["secure"], s.sealedNames())
	}
	if text := compact(t, at(gone, "metadata", "managedFields")); strings.Contains(text, "f:create") || strings.Contains(text, "f:remove") {
		t.Errorf("managed fields: %s", text)
	}
	s.canary(canaryOne, canaryTwo)
	s.must("DELETE", path, "")
	if len(s.sealedNames()) != 0 {
		t.Errorf("sealed values %q outlive their object", s.sealedNames())
	}
}

// TestMintedTokenOfAnotherURL: a token that was minted goes with the URL that it was
// minted for, and who changes the URL need not know of it. One that a person gave
// has to be given anew.
func TestMintedTokenOfAnotherURL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	s.must("POST", base+"repositories", strings.Replace(repositoryJSON(`{}`), `"type":"git"`, `"type":"git","connection":{"name":"app"}`, 1))
	const elsewhere = `{"spec":{"git":{"url":"https://git.example.com/ops/other.git"}}}`
	s.must("PATCH", path, `{"secure":{"token":{"create":"`+canaryOne+`"}}}`)
	if rec := s.send("PATCH", path, elsewhere, nil); rec.Code != 422 || s.token() != canaryOne {
		t.Errorf("the token of a person: %d, token %q", rec.Code, s.token())
	}
	s.must("PATCH", path+"/status", `{"secure":{"token":{"create":"`+canaryTwo+`"}},"status":{"token":{"lastUpdated":1}}}`)
	s.must("PATCH", path, `{"spec":{"title":"x"}}`)
	if s.token() != canaryTwo {
		t.Errorf("token %q after another change", s.token())
	}
	moved := s.must("PATCH", path, elsewhere)
	if _, err := s.SecretOf(t.Context(), "default", "dashboards", "token"); at(moved, "secure", "token") != nil || !errors.Is(err, state.ErrNotFound) {
		t.Errorf("secure %v, %v", moved["secure"], err)
	}
	s.canary(canaryOne, canaryTwo)
}
