package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

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

// podAccount is the ServiceAccount of the printed Deployment.
const podAccount = "system:serviceaccount:limpet:limpet"

// podDeployment is what the tests read of it.
type podDeployment struct {
	Kind  string
	Data  map[string]string
	Rules []struct{ Resources, Verbs []string }
	Spec  struct {
		Template struct {
			Spec struct{ Containers []struct{ Args []string } }
		}
	}
}

// TestDeployment: a strict cluster takes what 'limpet manifests' prints, and the agent with its
// arguments does all its work with exactly the rights that are in it: nothing is refused, and each
// right is used.
func TestDeployment(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	printed := newHome(t).must(t, 0, "manifests", "--controllers", "on", "--sources", "on", "--storage", "1Gi", "--webhook-listen", ":9441",
		"--claim-expiry", shortExpiry.String(), "--lease-renewal-interval", shortRenewal.String(), "--history-expiration", "1s").out
	server := testenv.Start(t, testenv.Options{Leases: true, Manifests: printed})
	h, admin := newHome(t), newHome(t)
	kubeconfig := func(h *home, text, token string) string {
		ca, err := os.ReadFile(server.CAFile)
		if err != nil {
			t.Fatal(err)
		}
		return h.file(t, "kubeconfig", strings.NewReplacer("https://kubernetes.default.svc", server.URL,
			"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", h.file(t, "ca.crt", string(ca)),
			"/var/run/secrets/kubernetes.io/serviceaccount/token", h.file(t, "token", token)).Replace(text))
	}
	var args []string
	var rules []struct{ Resources, Verbs []string }
	for text := range strings.SplitSeq(printed, "---\n") {
		var o podDeployment
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		switch o.Kind {
		case "ConfigMap":
			kubeconfig(h, o.Data["kubeconfig"], server.TokenOf(podAccount))
			admin.args = []string{"--kubeconfig", kubeconfig(admin, o.Data["kubeconfig"], server.Token), "--namespace", "default"}
		case "ClusterRole", "Role":
			rules = append(rules, o.Rules...)
		case "Deployment":
			args = o.Spec.Template.Spec.Containers[0].Args
		}
	}
	for i, arg := range args {
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--state":
			args[i] = name + "=" + h.state()
		case "--kubeconfig":
			args[i] = name + "=" + filepath.Join(h.dir, "kubeconfig")
		case "--telemetry-listen", "--webhook-listen":
			args[i] = name + "=" + freeAddress(t)
		}
	}
	h.daemon(t, args[1:]...)

	repo := testenv.Repo(t, 2, 3)
	origin := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", repo.Dir)
	admin.must(t, 0, "apply", "-f", admin.file(t, "sources.yaml", fmt.Sprintf(monitored, origin, testenv.Branch)))
	admin.must(t, 0, "repo", "create", "boards", "--url", origin, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "1h")
	until(t, "its controller has it", func() bool {
		return strings.Contains(admin.run(t, "get", "repository", "boards", "-o", "json").out, `"remove-orphan-resources"`)
	})
	pull := func() { admin.must(t, 0, "repo", "pull", "boards", "--full", "--wait") }
	pull()
	repo.Edit(t, repo.Dashboards()[0].Path)
	pull()
	admin.must(t, 0, "apply", "-f", admin.file(t, "secret.yaml", strings.Replace(declaredYAML("lab", "main"), `{create: "${SITE_TOKEN}"}`, "{name: lab}", 1)))
	until(t, "history", func() bool { return len(h.history(t)) < 2 })
	admin.must(t, 0, "delete", "repository", "boards", "--yes")
	until(t, "the repository is gone", func() bool { return admin.run(t, "get", "repository", "boards").code != 0 })
	// What no Repository here makes the agent do: cancel, release, take a Connection's token, find an
	// Event again.
	never := []string{"jobs patch", "connections get", "gitrepositories get", "ocirepositories get", "connections patch",
		"connections/status patch", "ocirepositories patch", "ocirepositories/status patch", "dashboards patch", "folders patch",
		"buckets get", "buckets patch", "buckets/status patch", "serviceaccounts get",
		"helmrepositories get", "helmrepositories patch", "helmrepositories/status patch",
		"helmcharts get", "helmcharts patch", "helmcharts/status patch",
		"folders update", "events get", "events patch"}
	var unused []string
	defer func() { t.Log("not used:", unused) }()
	until(t, "each right is used", func() bool {
		used := map[string]bool{}
		for _, r := range server.Requests(t, 0) {
			if r.User != podAccount {
				continue
			}
			if used[rightOf(r)] = true; r.Code == http.StatusForbidden {
				t.Fatalf("refused: %s", r)
			}
		}
		unused = nil
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if right := resource + " " + verb; !used[right] && !slices.Contains(never, right) {
						unused = append(unused, right)
					}
				}
			}
		}
		return len(unused) == 0
	})
}

// rightOf is the right that a request needs: its resource and verb.
func rightOf(r testenv.Request) string {
	words := strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.Path, "/api/v1/"), "/apis/"), "/")
	if strings.HasPrefix(r.Path, "/apis/") {
		words = words[min(2, len(words)):]
	}
	if len(words) > 2 && words[0] == "namespaces" {
		words = words[2:]
	}
	verb := map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}[r.Method]
	switch {
	case len(words) == 0:
		return ""
	case len(words) > 2:
		return words[0] + "/" + words[2] + " " + verb
	case len(words) == 1 && r.Method == "GET" && strings.Contains(r.Query, "watch="):
		verb = "watch"
	case len(words) == 1 && r.Method == "GET":
		verb = "list"
	}
	return words[0] + " " + verb
}
