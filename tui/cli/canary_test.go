package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/tui/cli/clitest"
)

// TestNoOutputHasASecret: no output about a site that is full of secrets has one of
// them, in any form; nor one of the call itself.
func TestNoOutputHasASecret(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := 0
	canary := func() string { made++; return fmt.Sprintf("canary-%d-5ecr3t", made) }
	write := func(name, text string) string {
		file := filepath.Join(s.Dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	token := write("git-token", canary()+"\n")
	s.Must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/boards.git", "--git-token-file", token)
	s.Must(t, 0, "repo", "pull", "boards", "-q")
	s.Apply(t, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Connection","metadata":{"name":"lab"},
		"spec":{"title":"Lab","type":"gitlab","url":"https://127.0.0.1:1"},"secure":{"token":{"create":"`+canary()+`"}}}`)
	objects := write("objects.json", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"default"},"stringData":{"token":"`+canary()+`"}}`)
	s.Must(t, 0, "apply", "-f", objects)
	rec := clitest.Record("u1", "default", "boards", "error", 0)
	url := "https://ann:" + canary() + "@git.example.com/x.git"
	rec.Message = "fetch " + url + ": refused"
	s.Record(t, rec)
	s.Apply(t, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"signed"},
		"spec":{"title":"Signed","type":"git","workflows":["write"],"git":{"url":"https://127.0.0.1:1/signed.git","branch":"main"},"sync":{"enabled":false,"target":"folder"}},
		"secure":{"commitSigningKey":{"create":"`+canary()+`"},"commitSigningPassphrase":{"create":"`+canary()+`"}}}`)
	s.Must(t, 0, "source", "create", "token", "--url", "https://127.0.0.1:1/token.git", "--git-token-file", token)
	s.Apply(t, `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","metadata":{"name":"fleet"},
		"spec":{"url":"https://ann:`+canary()+`@git.example.com/fleet.git","interval":"1m"},
		"status":{"conditions":[{"type":"Ready","status":"False","reason":"GitOperationFailed","message":"clone https://ann:`+canary()+`@git.example.com/fleet.git: refused"}],
			"artifact":{"revision":"main@sha1:0123456789012345678901234567890123456789","url":"http://ann:`+canary()+`@127.0.0.1:1/fleet.tar.gz","digest":"sha256:`+strings.Repeat("0", 64)+`","path":"fleet.tar.gz","lastUpdateTime":"2026-01-01T00:00:00Z"}}}`)
	write("creds/default.boards/password", canary())
	write("creds/default.boards/commitSigningKey", canary())
	write("creds/default.boards/commitSigningPassphrase", canary())
	s.Env["LIMPET_CREDENTIALS_DIR"] = filepath.Join(s.Dir, "creds")
	s.Env["LIMPET_CONFIG"] = write("config.yaml", "token: "+canary()+
		"\ngit-credentials:\n- url: https://git.example.com/*\n  values: {username: ann, password: "+canary()+", commitSigningKey: "+canary()+
		", commitSigningPassphrase: "+canary()+"}\n"+
		"contexts:\n- {name: far, ssh: \"ssh://ann:"+canary()+"@127.0.0.1:1\"}\n- {name: hq, provisioning-server-url: \"https://ann:"+canary()+
		"@127.0.0.1:1\", token: "+canary()+"}\n")
	s.Env["HTTPS_PROXY"] = "http//ann:" + canary() + "@proxy.example.com:3128"
	s.Env["LIMPET_NOTIFY"], s.Env["LIMPET_HEARTBEAT"] = "slack+https://127.0.0.1:1/services/"+canary(), "https://127.0.0.1:1/"+canary()
	s.Env["LIMPET_TOKEN"] = canary()

	calls := map[string][]string{
		"config path": {"config path"}, "config show": {"config show"}, "config validate": {"config validate"},
		"connection list": {"connection list"}, "connection show": {"connection show lab"},
		"connection test": {"connection test lab"}, "crds": {"crds"}, "doctor": {"doctor"},
		"fleet status":   {"fleet status --wait 500ms", "--context hq repo list", "--context far repo list"},
		"get":            {"get secrets", "get secret s", "get repositories", "get connections", "get jobs", "get secret none"},
		"history export": {"history export"}, "history list": {"history list"}, "history show": {"history show u1", "history show none"},
		"job diff": {"job diff u1"}, "job list": {"job list"}, "job logs": {"job logs u1", "job logs boards-sync"}, "job show": {"job show boards-sync", "job show u1"},
		"job watch": {"job watch none"}, "logs": {"logs"},
		"monitoring dashboards": {"monitoring dashboards"}, "monitoring ksm": {"monitoring ksm"}, "monitoring rules": {"monitoring rules"},
		"manifests": {"manifests"}, "monitoring podmonitor": {"monitoring podmonitor"}, "monitoring scrape": {"monitoring scrape"},
		"repo export": {"repo export boards --file -"}, "source export": {"source export fleet --file -"},
		"repo diff": {"repo diff boards"}, "repo files": {"repo files boards"}, "repo list": {"repo list"}, "repo open": {"repo open boards --print"},
		"repo show": {"repo show boards", "repo show signed"},
		"repo test": {"repo test boards", "repo test signed"}, "repo validate": {"repo validate " + objects},
		"service print": {"service print"},
		"source diff":   {"source diff fleet", "source diff fleet --stat"},
		"source get":    {"source get fleet --file -"}, "source list": {"source list"}, "source show": {"source show fleet"},
		"source test": {"source test fleet"}, "status": {"status", "--provisioning-server-url https://127.0.0.1:1 job list"},
		"store check": {"store check"}, "store info": {"store info"}, "validate": {"validate " + objects}, "version": {"version"},
	}
	// they print no objects; the backup is the file, with its secrets sealed
	speechless := []string{"completion", "dashboard", "man", "store backup"}
	commands, err := Commands()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		if commands[command] || slices.Contains(speechless, command) || strings.HasPrefix(command, "__") {
			continue
		}
		if len(calls[command]) == 0 {
			t.Errorf("limpet %s is not asked for secrets: give it a line in this test", command)
		}
		for _, call := range calls[command] {
			for _, form := range []string{"table", "wide", "json", "jsonl", "yaml", "name"} {
				_, out, errs := s.Call(append(strings.Fields(call), "-o", form)...)
				for n := range made {
					if secret := fmt.Sprintf("canary-%d-5ecr3t", n+1); strings.Contains(out+errs, secret) {
						t.Errorf("limpet %s -o %s tells secret %d:\n%s%s", call, form, n+1, out, errs)
					}
				}
			}
		}
	}
	// As JSON and YAML an object is what the API has; a table is for a person.
	for _, call := range []string{"get gitrepositories", "get gitrepository fleet", "get gitrepositories -o wide",
		"get gitrepositories -o name"} {
		if _, out, errs := s.Call(strings.Fields(call)...); !strings.Contains(out, "fleet") || strings.Contains(out+errs, "-5ecr3t") {
			t.Errorf("limpet %s:\n%s%s", call, out, errs)
		}
	}
	if made < 15 {
		t.Errorf("%d secrets", made)
	}
}
