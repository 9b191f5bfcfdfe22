package notify

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/text"
)

// TestParseTargets checks what is taken, and that no error repeats a secret.
func TestParseTargets(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"https://a.example/secretpath?x=1&limpet-severity=error&y=2&limpet-name=default/s*": "https://a.example#",
		"slack+https://hooks.slack.com/services/T0/B0/secretsecretsecret":                   "slack+https://hooks.slack.com#",
		"alertmanager+http://127.0.0.1:9093":                                                "alertmanager+http://127.0.0.1:9093#",
		"exec:/bin/true a b?limpet-name=x":                                                  "exec:/bin/true#",
		"http://localhost/x":                                                                "http://localhost#",
		"http://a.example/secret":                                                           "", "ftp://a.example/secret": "", "webhook+https://a.example/secret": "", "exec:true secret": "",
		"https:///secret": "", "https://a.example/secret?limpet-severity=all": "", "https://a.example/secret?limpet-name=[": "", "": "",
	} {
		got, err := ParseTargets([]string{value}, nil, false)
		switch {
		case want == "" && (err == nil || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v", value, err)
		case want != "" && (err != nil || !strings.HasPrefix(got[0].Name, want)):
			t.Errorf("%s: %v", value, err)
		}
	}
	if text.Redact("POST /services/T0/B0/secretsecretsecret") != "POST /[redacted]" {
		t.Error("the path of Slack is not redacted")
	}
	if _, err := ParseTargets([]string{"https://a/", "https://a/?limpet-severity=error"}, nil, false); err == nil {
		t.Error("the same twice")
	}
	got, _ := ParseTargets([]string{"https://a.example/x?b=1&limpet-severity=error&a=2&limpet-name=default/s*", "alertmanager+https://a.example"}, nil, false)
	if got[0].url != "https://a.example/x?b=1&a=2" || got[1].url != "https://a.example/api/v2/alerts" {
		t.Errorf("%s %s", got[0].url, got[1].url)
	}
	for _, tt := range []struct {
		e    Event
		want [2]bool
	}{
		{Event{Namespace: "default", Name: "site", Severity: Error}, [2]bool{true, true}},
		{Event{Namespace: "default", Name: "site", Severity: Info}, [2]bool{}},
		{Event{Namespace: "default", Name: "site", Severity: Info, Recovered: []string{"x"}}, [2]bool{true, true}},
		{Event{Namespace: "other", Name: "site", Severity: Error}, [2]bool{false, true}},
	} {
		if have := [2]bool{got[0].wants(&tt.e), got[1].wants(&tt.e)}; have != tt.want {
			t.Errorf("%+v: %v", tt.e, have)
		}
	}
}

// TestPayloads holds the bytes that each kind of target gets.
func TestPayloads(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		got <- strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("X-Signature"), r.Header.Get("gotk-component"), r.Header.Get("Idempotency-Key"),
			user + ":" + password, strings.ReplaceAll(string(body), hostName(), "HOST")}, "\n")
		w.Header().Set("Content-Type", "text/html") // as Slack's
	}))
	t.Cleanup(server.Close)
	client := &netx.Client{AllowInsecure: true, Timeout: Timeout}
	at := time.Date(2026, 11, 27, 1, 2, 3, 0, time.UTC)
	failure := Event{Kind: "Repository", Namespace: "default", Name: "site", UID: "u", APIVersion: "v1", Topic: "Ready", Severity: Error, Reason: "Down",
		Message: "a <b> & c", Time: at, Metadata: map[string]string{"revision": ""}, ID: "ID"}
	recovery := failure
	recovery.Severity, recovery.Reason, recovery.Recovered = Info, "Recovered", []string{"Down", "Late"}
	const labels = `"labels":{"alertname":"LimpetDown","instance":"HOST","kind":"Repository","name":"site","namespace":"default","reason":"Down","reportingcontroller":"limpet","severity":"error","topic":"Ready"}`
	for _, tt := range []struct {
		scheme, path string
		event        Event
		want         string
	}{
		{"", "ann:pw@/hook?limpet-severity=error", failure, "POST\n/hook\nsha256=SUM\nlimpet\nID\nann:pw\n" +
			`{"involvedObject":{"apiVersion":"v1","kind":"Repository","name":"site","namespace":"default","uid":"u"},` +
			`"message":"a \u003cb\u003e \u0026 c","metadata":{"limpet/event-id":"ID"},"reason":"Down","reportingController":"limpet",` +
			`"reportingInstance":"HOST","severity":"error","timestamp":"2026-11-27T01:02:03Z"}`},
		{"slack+", "/services/x", failure, "POST\n/services/x\n\n\nID\n:\n" +
			`{"attachments":[{"author_name":"repository default/site","color":"danger","footer":"limpet on HOST",` +
			`"text":"a \u0026lt;b\u0026gt; \u0026amp; c","title":"Down","ts":1795741323}],"username":"limpet"}`},
		{"alertmanager+", "", failure, "POST\n/api/v2/alerts\n\n\nID\n:\n[{" +
			`"annotations":{"message":"a \u003cb\u003e \u0026 c","summary":"repository default/site: Down"},"endsAt":"2026-11-28T03:02:03Z",` + labels + `,"startsAt":"2026-11-27T01:02:03Z"}]`},
		{"alertmanager+", "", recovery, "POST\n/api/v2/alerts\n\n\nID\n:\n[{" +
			`"annotations":{"message":"a \u003cb\u003e \u0026 c","summary":"repository default/site: Recovered"},"endsAt":"2026-11-27T01:02:03Z",` + labels + `},{` +
			`"annotations":{"message":"a \u003cb\u003e \u0026 c","summary":"repository default/site: Recovered"},"endsAt":"2026-11-27T01:02:03Z",` + strings.ReplaceAll(labels, "Down", "Late") + `}]`},
	} {
		user, path, found := strings.Cut(tt.path, "@")
		if !found {
			user, path = "", tt.path
		} else {
			user += "@"
		}
		targets, err := ParseTargets([]string{tt.scheme + "http://" + user + strings.TrimPrefix(server.URL, "http://") + path}, []byte("key"), false)
		if err == nil {
			err = targets[0].send(t.Context(), client, slog.New(slog.DiscardHandler), &tt.event)
		}
		if err != nil {
			t.Fatal(err)
		}
		have := <-got
		if parts := strings.Split(have, "\n"); tt.scheme == "" {
			// echo -n BODY | openssl dgst -sha256 -hmac key
			have = strings.Replace(have, parts[2], "sha256="+map[bool]string{true: "SUM"}[len(parts[2]) == 71], 1)
		}
		if have != tt.want {
			t.Errorf("%s%s:\n%s\nwant\n%s", tt.scheme, tt.path, have, tt.want)
		}
	}
}

// TestSignature holds a signature that openssl has made.
func TestSignature(t *testing.T) {
	t.Parallel()
	if got := sign([]byte("key"), []byte("The quick brown fox jumps over the lazy dog")); got !=
		"sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8" {
		t.Error(got)
	}
}

// TestExec: a program gets the event without a shell and without the settings of this program; one
// that fails is an error with the end of its output.
func TestExec(t *testing.T) {
	for _, name := range []string{"LIMPET_TOKEN", "GRAFANA_TOKEN", "AWS_SECRET_ACCESS_KEY", "CREDENTIALS_DIRECTORY", "HTTPS_PROXY"} {
		t.Setenv(name, "secret")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	script := "#!/bin/sh\nenv > " + dir + "/env; cat > " + dir + "/in; echo \"$@\" > " + dir + "/args; echo said; [ \"$1\" != fail ]\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"a;touch " + dir + "/bad $(id) ok", "fail"} {
		targets, err := ParseTargets([]string{"exec:" + program + " " + args}, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		err = targets[0].send(t.Context(), nil, slog.New(slog.DiscardHandler), &Event{Name: "site", Severity: Error, Reason: "Down", ID: "ID"})
		if fails := args == "fail"; fails != (err != nil) || fails && !strings.HasSuffix(err.Error(), "exit status 1: said") {
			t.Errorf("%s: %v", args, err)
		}
		read := func(name string) string { data, _ := os.ReadFile(filepath.Join(dir, name)); return string(data) }
		if read("args") != args+"\n" || strings.Contains(read("env"), "secret") || !json.Valid([]byte(read("in"))) {
			t.Errorf("%s: %q %q", args, read("args"), read("in"))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "bad")); err == nil {
		t.Error("a shell has run")
	}
}

// TestKubernetes: an Event is made, and counted up when the same is told again; one that is sent
// twice counts once, and where none is allowed nothing waits.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	var stored map[string]any
	refused := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		reply := func(code int, v any) { w.WriteHeader(code); json.NewEncoder(w).Encode(v) }
		status := func(code int, reason string) {
			reply(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason})
		}
		name, _, _ := unstructured.NestedString(body, "metadata", "name")
		switch {
		case refused:
			status(403, "Forbidden")
		case len(name) > 253 || strings.Contains(name, "bad"):
			status(422, "Invalid")
		case r.Method == "POST" && stored != nil:
			status(409, "AlreadyExists")
		case r.Method == "POST":
			stored = body
			reply(201, stored)
		case r.Method == "PATCH":
			stored["count"], stored["metadata"].(map[string]any)["annotations"] = body["count"], body["metadata"].(map[string]any)["annotations"]
			fallthrough
		default:
			reply(200, stored)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kube.Connect(t.Context(), kube.Config{Server: server.URL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	target, log := Kubernetes(client), slog.New(slog.DiscardHandler)
	for i, id := range []string{"1", "1", "2", "3"} {
		refused = i == 3
		e := &Event{Kind: "Repository", Namespace: "default", Name: "site", Severity: Error, Reason: "Down", Message: "no", ID: id, Time: time.Now(),
			Metadata: map[string]string{"source.toolkit.fluxcd.io/revision": "main@" + id, "revision": id}}
		if err := target.send(t.Context(), nil, log, e); err != nil {
			t.Fatal(err)
		}
	}
	notes := stored["metadata"].(map[string]any)["annotations"].(map[string]any)
	if len(notes) != 2 || notes["source.toolkit.fluxcd.io/revision"] != "main@2" {
		t.Errorf("annotations %v", notes)
	}
	if stored["count"] != 2.0 || stored["type"] != "Warning" || stored["involvedObject"].(map[string]any)["name"] != "site" {
		t.Errorf("%v", stored)
	}
	refused, stored = false, nil
	if err := target.send(t.Context(), nil, log, &Event{Kind: "Repository", Name: strings.Repeat("a.", 125), Severity: Error}); err != nil {
		t.Errorf("a long name: %v", err)
	}
	if err := target.send(t.Context(), nil, log, &Event{Kind: "Repository", Name: "bad", Severity: Error}); netx.KindOf(err) != netx.Refused {
		t.Errorf("one that the API refuses does not hold up others: %v", err)
	}
}
