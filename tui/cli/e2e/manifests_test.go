package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// declaredYAML is a manifest of a Repository with a token, for the site east.
func declaredYAML(name, branch string) string {
	return fmt.Sprintf(`---
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: %s, namespace: default, labels: {site: east}}
spec: {title: T, type: git, git: {url: "https://git.example.invalid/a.git", branch: %s}, sync: {enabled: false, target: folder}}
secure: {token: {create: "${SITE_TOKEN}"}}
`, name, branch)
}

var exchangeURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/sign/access-token`)

// TestManifestsOnAServer keeps the objects of a directory present on 'limpet api', with tokens of
// its exchange: applied, changed with the file, owned, and deleted only when that is asked for.
func TestManifestsOnAServer(t *testing.T) {
	t.Parallel()
	server, out := newHome(t), &log{}
	url, stop := serveAPI(t, server, out)
	exchange := exchangeURL.FindString(out.String())
	h := newHome(t, "--provisioning-server-url", url, "--token", testenv.SignToken, "--token-exchange-url", exchange)
	keepsManifests(t, h, func() { // its database is lost
		stop()
		if err := os.RemoveAll(filepath.Dir(server.state())); err != nil {
			t.Fatal(err)
		}
		serveAPI(t, server, out, "--listen", strings.TrimPrefix(url, "https://"), "--sign-listen", strings.TrimSuffix(
			strings.TrimPrefix(exchange, "http://"), "/sign/access-token"))
	})
}

// TestManifestsOnAPIMachinery is the same with the machinery of Kubernetes.
func TestManifestsOnAPIMachinery(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	api := testenv.Start(t, testenv.Options{})
	h := newHome(t, "--provisioning-server-url", api.URL, "--tls-ca-file", api.CAFile, "--token", testenv.SignToken,
		"--token-exchange-url", api.SignURL)
	keepsManifests(t, h, func() { h.must(t, 0, "delete", "repository", "one", "--yes", "--force") })
}

func keepsManifests(t *testing.T, h *home, lose func()) {
	t.Helper()
	h.env = append(h.env, "SITE_TOKEN=s3cr3t-canary-of-a-site")
	dir := filepath.Dir(h.file(t, "site/site.yaml", declaredYAML("one", "main")+declaredYAML("two", "main")))
	h.file(t, "site/west.yaml", strings.NewReplacer("east", "west", "SITE_TOKEN", "NOT_SET").Replace(declaredYAML("west", "main")))
	args := []string{"--controllers", "off", "--manifests", dir, "--manifests-selector", "site=east"}
	d := h.daemon(t, args...)
	has := func(name, text string) bool {
		return strings.Contains(h.run(t, "get", "repository", name, "-o", "json").out, text)
	}
	until(t, "the objects are there", func() bool { return has("one", "limpet/manifest-owner") && has("two", `"main"`) })
	if h.run(t, "get", "repository", "west").code == 0 {
		t.Error("the object of another site is there")
	}
	for _, call := range []string{"delete repository one --yes", "repo set one --title x"} {
		if r := h.must(t, exitError, strings.Fields(call)...); !strings.Contains(r.err, "site.yaml of --manifests") {
			t.Errorf("%s: %s", call, r.err)
		}
	}
	h.file(t, "site/site.yaml", declaredYAML("one", "dev")+declaredYAML("two", "main"))
	until(t, "the change holds", func() bool { return has("one", `"dev"`) })
	if suite.HasAll() {
		lose()
		until(t, "what was lost is back", func() bool { return has("one", `"dev"`) })
		h.must(t, 0, "repo", "set", "two", "--title", "by hand", "--force")
		until(t, "what was changed is back", func() bool { return has("two", `"T"`) })
	}
	h.file(t, "site/site.yaml", declaredYAML("two", "dev"))
	until(t, "the change holds", func() bool { return has("two", `"dev"`) })
	if !has("one", `"dev"`) {
		t.Error("deleted without --manifests-prune")
	}
	d.stop(t)
	if !suite.HasAll() { // an object has to be undeclared for half a minute
		h.noSecret(t, d.log.String(), "s3cr3t-canary-of-a-site")
		return
	}
	second := h.daemon(t, append(args, "--manifests-prune")...)
	until(t, "what no file declares is deleted", func() bool { return h.run(t, "get", "repository", "one").code != 0 })
	if !has("two", `"dev"`) {
		t.Error("too much was deleted")
	}
	if n := strings.Count(second.log.String(), "restored an object"); n > 0 {
		t.Errorf("%d objects are written again and again", n)
	}
	second.stop(t)
	h.noSecret(t, d.log.String()+second.log.String(), "s3cr3t-canary-of-a-site")
}
