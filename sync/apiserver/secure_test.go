package apiserver

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"limpet/state"
)

const (
	canaryOne = "canary-one-5b1f"
	canaryTwo = "canary-two-9c3e"
)

// pemKey is a private key in form only; nothing signs with it.
const pemKey = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n"

func repositoryJSON(secure string) string {
	return fmt.Sprintf(`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"dashboards"},
		"spec":{"title":"Dashboards","type":"git","git":{"url":"https://git.example.com/ops/dashboards.git","branch":"main"},
		"sync":{"enabled":true,"target":"folder","intervalSeconds":60}},"secure":%s}`, secure)
}

// named returns the file with another name and URL.
func named(name, file string) string {
	return strings.NewReplacer(`"name":"dashboards"`, `"name":"`+name+`"`, "dashboards.git", name+".git").Replace(file)
}

// inlineOf returns the name of the sealed token and checks that nothing else of it is shown.
func (s *site) inlineOf(repo map[string]any) string {
	s.t.Helper()
	token, _ := at(repo, "secure", "token").(map[string]any)
	name, _ := token["name"].(string)
	if len(token) != 1 || !strings.HasPrefix(name, "inline-") {
		s.t.Fatalf("secure.token = %v, want a name alone", token)
	}
	if text := fmt.Sprint(repo); strings.Contains(text, canaryOne) || strings.Contains(text, canaryTwo) {
		s.t.Fatalf("the answer holds the value: %s", text)
	}
	return name
}

func (s *site) token() string {
	s.t.Helper()
	plain, err := s.SecretOf(s.t.Context(), "repositories", "default", "dashboards", "token", "")
	if errors.Is(err, state.ErrNotFound) {
		return ""
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return string(plain)
}

func TestInlineSecureValue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	created := s.must("POST", base+"repositories", repositoryJSON(`{"token":{"create":"`+canaryOne+`"}}`))
	name := s.inlineOf(created)
	if got := s.token(); got != canaryOne {
		t.Fatalf("token = %q", got)
	}
	if again := s.inlineOf(s.must("GET", path, "")); again != name {
		t.Errorf("GET answers %q, create %q", again, name)
	}
	s.inlineOf(at(s.must("GET", base+"repositories", ""), "items").([]any)[0].(map[string]any))

	steps := []struct {
		what, method, body string
		token              string
		same               bool // the sealed value keeps its name
	}{
		{"a patch of something else", "PATCH", `{"spec":{"title":"x"}}`, canaryOne, true},
		{"a patch with null", "PATCH", `{"secure":{"token":null}}`, canaryOne, true},
		{"a patch with nothing", "PATCH", `{"secure":{"token":{}}}`, canaryOne, true},
		{"the same name", "PATCH", `{"secure":{"token":{"name":"` + name + `"}}}`, canaryOne, true},
		{"the same value", "PATCH", `{"secure":{"token":{"create":"` + canaryOne + `"}}}`, canaryOne, true},
		{"an apply without it", "PATCH", `application/apply-patch+yaml {"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","spec":{"description":"y"}}`, canaryOne, true},
		{"a new value", "PATCH", `{"secure":{"token":{"create":"` + canaryTwo + `"}}}`, canaryTwo, false},
		{"a second one beside it", "PATCH", `{"secure":{"webhookSecret":{"create":"` + canaryOne + `"}}}`, canaryTwo, false},
	}
	for _, step := range steps {
		target := path
		if strings.HasPrefix(step.body, "application/apply") {
			target += "?fieldManager=test&force=true"
		}
		repo := s.must(step.method, target, step.body)
		if got := s.inlineOf(repo); (got == name) != step.same {
			t.Errorf("%s: the value is called %q, before %q", step.what, got, name)
		}
		if got := s.token(); got != step.token {
			t.Errorf("%s: token = %q, want %q", step.what, got, step.token)
		}
	}
	if names := s.sealedNames(); len(names) != 2 {
		t.Errorf("sealed values %q, want the token and the webhook secret", names)
	}

	removed := s.must("PATCH", path, `{"secure":{"token":{"remove":true}}}`)
	if at(removed, "secure", "token") != nil || s.token() != "" {
		t.Errorf("removed, but there is %v and %q", removed["secure"], s.token())
	}
	s.must("PATCH", path, `{"secure":{"token":{"create":"`+canaryTwo+`"}}}`)
	s.must("DELETE", path, "")
	if names := s.sealedNames(); len(names) != 0 {
		t.Errorf("sealed values %q outlive their object", names)
	}
	s.canary(canaryOne, canaryTwo)
}

// TestInlineSecureValuePut: clients put back what they read, which is a name.
func TestInlineSecureValuePut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	repo := s.must("POST", base+"repositories", repositoryJSON(`{"token":{"create":"`+canaryOne+`"}}`))
	name, version := s.inlineOf(repo), at(repo, "metadata", "resourceVersion")
	put := func(secure any) map[string]any {
		t.Helper()
		repo := s.must("GET", path, "")
		if delete(repo, "secure"); secure != nil {
			repo["secure"] = secure
		}
		return s.must("PUT", path, compact(t, repo))
	}
	same := put(map[string]any{"token": map[string]any{"name": name}})
	if at(same, "metadata", "resourceVersion") != version {
		t.Error("putting back what was read is a change")
	}
	if left := put(nil); s.inlineOf(left) != name || at(left, "metadata", "generation") != at(repo, "metadata", "generation") {
		t.Error("leaving the member out is a change of the spec")
	}
	if other := put(map[string]any{"token": map[string]any{"name": "my-secret"}}); at(other, "secure", "token", "name") != "my-secret" {
		t.Errorf("secure = %v", other["secure"])
	}
	if names := s.sealedNames(); len(names) != 0 {
		t.Errorf("sealed values %q are left although a Secret is named now", names)
	}
	if got := s.token(); got != "" {
		t.Errorf("a reference to a Secret is opened as %q", got)
	}
}

// TestInlineSecureValueOwnership: the managed fields know the name, never the members that exist in
// requests only, so that kubectl may change from client-side to server-side apply without a
// conflict.
func TestInlineSecureValueOwnership(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	owners := func(repo map[string]any) string {
		t.Helper()
		text := compact(t, at(repo, "metadata", "managedFields"))
		if strings.Contains(text, "f:create") || strings.Contains(text, "f:remove") {
			t.Errorf("managed fields: %s", text)
		}
		return text
	}
	file := repositoryJSON(`{"token":{"create":"` + canaryOne + `"}}`)
	if text := owners(s.must("POST", base+"repositories?fieldManager=one", file)); !strings.Contains(text, `"f:token":{".":{},"f:name":{}}`) {
		t.Errorf("managed fields: %s", text)
	}
	owners(s.must("PATCH", path+"?fieldManager=one", `{"secure":{"token":{"create":"`+canaryTwo+`"}}}`))
	owners(s.must("PATCH", path+"?fieldManager=two", "application/apply-patch+yaml "+file))
	owners(s.must("PATCH", path+"?fieldManager=two", "application/apply-patch+yaml "+repositoryJSON(`{}`)))
	if got := s.token(); got != canaryOne {
		t.Errorf("token = %q after an apply without it", got)
	}
	if text := owners(s.must("PATCH", path+"?fieldManager=one", `{"secure":{"token":{"remove":true}}}`)); strings.Contains(text, "f:token") {
		t.Errorf("managed fields of a removed value: %s", text)
	}
}

// TestInlineSecureValueIsOwned: no write gives an object the name of another one's value, and no
// Secret takes it.
func TestInlineSecureValueIsOwned(t *testing.T) {
	t.Parallel()
	const secrets = "/api/v1/namespaces/default/secrets"
	s := newSite(t)
	s.options.SealedSecrets = true
	name := s.inlineOf(s.must("POST", base+"repositories", repositoryJSON(`{"token":{"create":"`+canaryOne+`"}}`)))
	s.must("POST", base+"repositories", named("other", repositoryJSON(`{"token":{"create":"`+canaryTwo+`"}}`)))
	stolen := `{"token":{"name":"` + name + `"}}`
	put := strings.Replace(named("other", repositoryJSON(stolen)), `"metadata":{`, `"metadata":{"resourceVersion":"`+
		fmt.Sprint(at(s.must("GET", base+"repositories/other", ""), "metadata", "resourceVersion"))+`",`, 1)
	connection := `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Connection","metadata":{"name":"c"},"spec":{"title":"c",
		"type":"github","github":{"appID":"1","installationID":"2"}},"secure":{"privateKey":{"name":"` + name + `"}}}`
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", base + "repositories", named("thief", repositoryJSON(stolen)), "secure.token.name"},
		{"POST", base + "repositories?dryRun=All", named("thief", repositoryJSON(stolen)), "secure.token.name"},
		{"PATCH", base + "repositories/thief?fieldManager=x", "application/apply-patch+yaml " + named("thief", repositoryJSON(stolen)), "secure.token.name"},
		{"PUT", base + "repositories/other", put, "secure.token.name"},
		{"PATCH", base + "repositories/other", `{"secure":` + stolen + `}`, "secure.token.name"},
		{"PATCH", base + "repositories/dashboards", `{"secure":{"webhookSecret":{"name":"` + name + `"}}}`, "secure.webhookSecret.name"},
		{"POST", base + "connections", connection, "secure.privateKey.name"},
		{"POST", secrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"},"stringData":{"token":"x"}}`, "metadata.name"},
	} {
		code, status := s.call(c.method, c.path, c.body)
		causes, _ := at(status, "details", "causes").([]any)
		if code != 422 || len(causes) != 1 || at(causes[0].(map[string]any), "field") != c.field {
			t.Errorf("%s %s: %d %v, want a fault of %s", c.method, c.path, code, status, c.field)
		}
	}
	if got := len(s.sealedNames()); got != 2 || s.token() != canaryOne {
		t.Errorf("%d sealed values, token %q", got, s.token())
	}
	for _, absent := range [][2]string{{"absent", "token"}, {"dashboards", "webhookSecret"}} {
		if _, err := s.SecretOf(t.Context(), "repositories", "default", absent[0], absent[1], ""); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%v: %v", absent, err)
		}
	}
}

func TestConnectionSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	key := base64.StdEncoding.EncodeToString([]byte(pemKey))
	made := s.must("POST", base+"connections",
		`{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Connection","metadata":{"name":"github-app"},
		"spec":{"title":"GitHub App","type":"github","github":{"appID":"123456","installationID":"454545"}},
		"secure":{"privateKey":{"create":"`+key+`"}}}`)
	if name, _ := at(made, "secure", "privateKey", "name").(string); !strings.HasPrefix(name, inlinePrefix) || len(s.sealedNames()) != 1 {
		t.Errorf("secure = %v, sealed %q", made["secure"], s.sealedNames())
	}
	if plain, err := s.SecretOf(t.Context(), "connections", "default", "github-app", "privateKey", ""); err != nil || string(plain) != key {
		t.Errorf("%d bytes opened, %v", len(plain), err)
	}
	if _, err := s.SecretOf(t.Context(), "repositories", "default", "github-app", "privateKey", ""); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a repository of that name: %v", err)
	}
	s.canary(key)
}

// TestLastApplied: kubectl's copy of the file is stored without the values.
func TestLastApplied(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	copied := func(file string) string {
		return strings.Replace(file, `"metadata":{`, `"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":`+
			fmt.Sprintf("%q", file+"\n")+`},`, 1)
	}
	repo := s.must("POST", base+"repositories", copied(repositoryJSON(`{"token":{"create":"`+canaryOne+`"}}`)))
	s.inlineOf(repo)
	if at(repo, "metadata", "annotations", lastApplied) != nil {
		t.Error("a copy with a secret value is stored")
	}
	plain := s.must("POST", base+"repositories", named("plain", copied(repositoryJSON(`{}`))))
	if at(plain, "metadata", "annotations", lastApplied) == nil {
		t.Error("a copy without a secret value is dropped")
	}
	value := base64.StdEncoding.EncodeToString([]byte(canaryTwo))
	secret := s.must("POST", "/api/v1/namespaces/default/secrets",
		copied(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"a":"`+value+`"},"stringData":{"b":"`+canaryTwo+`"}}`))
	if at(secret, "metadata", "annotations", lastApplied) != nil {
		t.Error("the copy of a Secret is stored")
	}
	broken := s.must("PATCH", base+"repositories/dashboards", `{"metadata":{"annotations":{"`+lastApplied+`":"{`+canaryOne+`"}}}`)
	if at(broken, "metadata", "annotations", lastApplied) != nil {
		t.Error("a copy that cannot be read is stored")
	}
	s.canary(canaryOne, canaryTwo, value)
}

const secretPath = "/api/v1/namespaces/default/secrets/s"

func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	one, two := base64.StdEncoding.EncodeToString([]byte(canaryOne)), base64.StdEncoding.EncodeToString([]byte(canaryTwo))
	created := s.must("POST", "/api/v1/namespaces/default/secrets",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"token":"`+one+`","empty":""},"stringData":{"user":"`+canaryTwo+`"}}`)
	data := func(secret map[string]any) string { return compact(t, secret["data"]) }
	all := `{"empty":"","token":"` + one + `","user":"` + two + `"}`
	if data(created) != all || created["stringData"] != nil || created["type"] != "Opaque" {
		t.Errorf("created %v", created)
	}
	got := s.must("GET", secretPath, "")
	if data(got) != all {
		t.Errorf("GET answers %s", data(got))
	}
	if list := at(s.must("GET", "/api/v1/secrets", ""), "items").([]any); data(list[0].(map[string]any)) != all {
		t.Errorf("LIST answers %v", list)
	}
	if again := s.must("PUT", secretPath, compact(t, got)); at(again, "metadata", "resourceVersion") != at(got, "metadata",
		"resourceVersion") {
		t.Error("putting back what was read is a change")
	}
	patched := s.must("PATCH", secretPath, `{"data":{"user":null},"stringData":{"more":"x"}}`)
	if want := `{"empty":"","more":"eA==","token":"` + one + `"}`; data(patched) != want {
		t.Errorf("patched %s, want %s", data(patched), want)
	}
	replaced := s.must("PATCH", secretPath, `application/json-patch+json [{"op":"test","path":"/data/token","value":"`+one+
		`"},{"op":"replace","path":"/data/token","value":"`+two+`"}]`)
	if at(replaced, "data", "token") != two {
		t.Errorf("replaced %v", replaced["data"])
	}
	if names := s.sealedNames(); len(names) != 2 {
		t.Errorf("sealed values %q, want two", names)
	}
	s.canary(canaryOne, canaryTwo, one, two)

	s.close()
	s = openSite(t, s.path)
	if got := s.must("GET", secretPath, ""); at(got, "data", "token") != two {
		t.Errorf("after a restart: %v", got["data"])
	}
	s.must("DELETE", secretPath, "")
	if names := s.sealedNames(); len(names) != 0 {
		t.Errorf("sealed values %q outlive their Secret", names)
	}
}

// TestSecretsWithoutKey: with the key lost, what is left is readable and can be
// deleted, and nothing more is lost by writing it back.
func TestSecretsWithoutKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.must("POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"token":"`+
		canaryOne+`"}}`)
	s.must("POST", base+"repositories", repositoryJSON(`{"token":{"create":"`+canaryOne+`"}}`))
	s.close()
	key, err := os.ReadFile(s.path + ".key")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.path + ".key"); err != nil {
		t.Fatal(err)
	}
	s = openSite(t, s.path)
	got := s.must("GET", secretPath, "")
	if at(got, "data", "token") != nil {
		t.Errorf("opened without the key: %v", got["data"])
	}
	if code, status := s.call("PATCH", secretPath, `{"metadata":{"labels":{"a":"b"}}}`); code != 500 ||
		!strings.Contains(fmt.Sprint(status["message"]), "key") {
		t.Errorf("write without the key: %d %v", code, status["message"])
	}
	s.must("PATCH", base+"repositories/dashboards", `{"spec":{"title":"x"}}`)
	if _, err := s.SecretOf(t.Context(), "repositories", "default", "dashboards", "token", ""); !errors.Is(err, state.ErrSealed) {
		t.Errorf("SecretOf without the key: %v", err)
	}
	s.close()
	if err := os.WriteFile(s.path+".key", key, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openSite(t, s.path)
	if got := s.must("GET", secretPath, ""); at(got, "data", "token") == nil {
		t.Error("the value is lost")
	}
	if got := s.token(); got != canaryOne {
		t.Errorf("token = %q", got)
	}
	s.close()
	if err := os.Remove(s.path + ".key"); err != nil {
		t.Fatal(err)
	}
	s = openSite(t, s.path)
	s.must("DELETE", secretPath, "")
	s.must("DELETE", base+"repositories/dashboards", "")
	if names := s.sealedNames(); len(names) != 0 {
		t.Errorf("sealed values %q are left", names)
	}
}

// TestSecureValuesOfStatus: a write of the status takes secure values, as Grafana's server does,
// and nothing else beside the status. It is no change of what a person wants, and the value is
// sealed like any other.
func TestSecureValuesOfStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path, status = base + "repositories/dashboards", base + "repositories/dashboards/status"
	const jsonPatch = "application/json-patch+json "
	made := s.must("POST", base+"repositories", repositoryJSON(`{}`))
	one := s.must("PATCH", status, jsonPatch+`[{"op":"test","path":"/metadata/resourceVersion","value":"`+
		at(made, "metadata", "resourceVersion").(string)+`"},
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
	two := s.must("PATCH", status, jsonPatch+`[{"op":"add","path":"/secure/token","value":{"create":"`+canaryTwo+
		`"}},{"op":"add","path":"/secure/webhookSecret","value":{"create":"`+canaryOne+`"}}]`)
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

// TestMintedTokenOfAnotherURL: a token that was minted goes with the URL that it was minted for,
// and who changes the URL need not know of it. One that a person gave has to be given anew.
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
	if _, err := s.SecretOf(t.Context(), "repositories", "default", "dashboards", "token", ""); at(moved, "secure", "token") != nil ||
		!errors.Is(err, state.ErrNotFound) {
		t.Errorf("secure %v, %v", moved["secure"], err)
	}
	s.canary(canaryOne, canaryTwo)
}

// TestSealedSecret: what secure.<field>.name names is read as a Secret where that is asked for, by
// its name alone.
func TestSealedSecret(t *testing.T) {
	t.Parallel()
	const secrets = "/api/v1/namespaces/default/secrets"
	s := newSite(t)
	name := s.inlineOf(s.must("POST", base+"repositories", repositoryJSON(`{"token":{"create":"`+canaryOne+`"}}`)))
	if code, _ := s.call("GET", secrets+"/"+name, ""); code != 404 {
		t.Errorf("a server with its agent inside answers %d", code)
	}
	s.options.SealedSecrets = true
	secret := s.must("GET", secrets+"/"+name, "")
	want := base64.StdEncoding.EncodeToString([]byte(canaryOne))
	if got := fmt.Sprint(secret["data"], at(secret, "metadata", "resourceVersion")); got != "map[token:"+want+"] <nil>" {
		t.Errorf("GET %s = %s", name, got)
	}
	if list := s.must("GET", secrets, ""); names(list) != "" {
		t.Errorf("the list has %s", names(list))
	}
	next := s.inlineOf(s.must("PATCH", base+"repositories/dashboards", `{"secure":{"token":{"create":"`+canaryTwo+`"}}}`))
	for _, path := range []string{secrets + "/inline-0123", "/api/v1/namespaces/other/secrets/" + next, secrets + "/" + name} {
		if code, _ := s.call("GET", path, ""); code != 404 {
			t.Errorf("GET %s = %d", path, code)
		}
	}
}
