package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"limpet/sync/source"
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
	printed := newHome(t).must(t, 0, "manifests", "--controllers", "on", "--sources", "on", "--storage", "1Gi", "--webhook-listen", ":9441", "--artifact-listen", ":9090",
		"--claim-expiry", shortExpiry.String(), "--lease-renewal-interval", shortRenewal.String(), "--history-expiration", "1s").out
	server := testenv.Start(t, testenv.Options{Leases: true, Manifests: printed, FluxDefinitions: true})
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
		case "--telemetry-listen", "--webhook-listen", "--artifact-listen":
			args[i] = name + "=" + freeAddress(t)
		}
	}
	h.daemon(t, args[1:]...)
	eachKindOfSource(t, admin)

	repo := testenv.Repo(t, 2, 3)
	origin := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", repo.Dir)
	admin.must(t, 0, "apply", "-f", admin.file(t, "sources.yaml", fmt.Sprintf(monitored, origin, testenv.Branch)))
	admin.must(t, 0, "repo", "create", "boards", "--url", origin, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "1h")
	until(t, "its controller has it", func() bool {
		return strings.Contains(admin.run(t, "get", "repository", "boards", "-o", "json").out, `"remove-orphan-resources"`)
	})
	pull := func() { admin.must(t, 0, "repo", "pull", "boards", "--full", "--wait") }
	pull()
	published := admin.published(t, origin)
	if out, err := exec.CommandContext(t.Context(), testenv.FluxClient(t), published.URL, published.Digest, t.TempDir()).CombinedOutput(); err != nil {
		t.Errorf("published: %v\n%s", err, out)
	}
	admin.must(t, 0, "delete", "repository", "published", "--yes")
	until(t, "it is published no more", func() bool { return admin.run(t, "get", "externalartifact", "published").code != 0 })
	repo.Edit(t, repo.Dashboards()[0].Path)
	pull()
	admin.must(t, 0, "apply", "-f", admin.file(t, "secret.yaml", strings.Replace(declaredYAML("lab", "main"), `{create: "${SITE_TOKEN}"}`, "{name: lab}", 1)))
	until(t, "history", func() bool { return len(h.history(t)) < 2 })
	admin.must(t, 0, "delete", "repository", "boards", "--yes")
	until(t, "the repository is gone", func() bool { return admin.run(t, "get", "repository", "boards").code != 0 })
	// What no Repository here makes the agent do: cancel, release, take a Connection's token, find an
	// Event again.
	never := []string{"jobs patch", "connections get", "gitrepositories get", "ocirepositories get", "connections patch",
		"connections/status patch", "buckets get", "helmrepositories get", "helmcharts get",
		"externalartifacts get", "dashboards patch", "folders patch",
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

// kindsOfSources are one of each kind, and one that asks for a ServiceAccount; their parameters are
// the registry, the store of objects and the repository of charts.
const kindsOfSources = `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: site, namespace: default}
spec: {interval: 1h, insecure: true, url: "oci://%[1]s/site", ignore: "/x"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: pulls, namespace: default}
spec: {interval: 1h, insecure: true, url: "oci://%[1]s/site", serviceAccountName: none}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: Bucket
metadata: {name: site, namespace: default}
spec: {interval: 1h, insecure: true, endpoint: "%[2]s", bucketName: site, ignore: "/x"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: site, namespace: default}
spec: {interval: 1h, url: "%[3]s"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: static, namespace: default}
spec: {type: oci, insecure: true, url: "oci://%[1]s/charts"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: site, namespace: default}
spec: {interval: 1h, chart: lamp, sourceRef: {kind: HelmRepository, name: site}, valuesFiles: [values.yaml, more.yaml],
  ignoreMissingValuesFiles: true}
`

// eachKindOfSource lets each kind live a life: found, suspended, resumed with what is new, deleted.
func eachKindOfSource(t *testing.T, admin *home) {
	t.Helper()
	client, registry, store := testenv.FluxClient(t), newRealRegistry(t), newRealStore(t)
	var served sync.Map // of the repository of charts, by path
	charts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := served.Load(r.URL.Path)
		body, _ := data.([]byte)
		_, _ = w.Write(body)
	}))
	t.Cleanup(charts.Close)
	publish := func(version string) {
		registry.push("site", "latest", map[string][]byte{"version": []byte(version)})
		store.do(http.MethodPut, "version", "", []byte(version))
		served.Store("/lamp-"+version+".tgz", tarball(t, map[string][]byte{"lamp/values.yaml": nil,
			"lamp/Chart.yaml": []byte("apiVersion: v2\nname: lamp\nversion: " + version + "\n")}))
		served.Store("/index.yaml", []byte("apiVersion: v1\nentries: {lamp: [{apiVersion: v2, name: lamp, version: "+version+", urls: [lamp-"+version+".tgz]}]}\n"))
	}
	publish("1.0.0")
	store.do(http.MethodPut, "", "policy=", []byte(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",
		"Action": ["s3:ListBucket", "s3:GetObject"], "Resource": ["arn:aws:s3:::site", "arn:aws:s3:::site/*"]}]}`))
	admin.must(t, 0, "apply", "-f", admin.file(t, "kinds.yaml", fmt.Sprintf(kindsOfSources, registry.address, store.address, charts.URL)))
	get := func(kind, name string) (u unstructured.Unstructured, of source.Source) {
		if json.Unmarshal([]byte(admin.run(t, "get", kind, name, "-o", "json").out), &u.Object) == nil {
			of = source.FromObject(&u)
		}
		return u, of
	}
	kinds := []string{"ocirepositories", "buckets", "helmrepositories", "helmcharts"}
	follow := func(not map[string]string) map[string]string {
		t.Helper()
		revisions := map[string]string{}
		for _, kind := range kinds {
			var of source.Source
			until(t, kind+" are ready", func() bool {
				_, of = get(kind, "site")
				return of.State == source.Ready && !of.Waiting && of.Artifact.Revision != not[kind]
			})
			revisions[kind] = of.Artifact.Revision
			if kind == "helmrepositories" {
				if got := fmt.Sprintf("sha256:%x", sha256.Sum256(httpBody(t, of.Artifact.URL))); got != of.Artifact.Digest {
					t.Errorf("%s: %s is served of %s", kind, got, of.Artifact.Digest)
				}
			} else if out, err := exec.CommandContext(t.Context(), client, of.Artifact.URL, of.Artifact.Digest, t.TempDir()).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", kind, err, out)
			}
		}
		return revisions
	}
	each := func(verb string) {
		t.Helper()
		for _, kind := range kinds {
			admin.must(t, 0, "source", verb, "site", "--kind", kind)
		}
	}
	first := follow(nil)
	each("suspend")
	publish("1.1.0")
	admin.must(t, 0, "apply", "-f", admin.file(t, "other.yaml", strings.ReplaceAll(fmt.Sprintf(kindsOfSources, registry.address, store.address, charts.URL),
		"name: site, namespace", "name: other, namespace")))
	for _, kind := range kinds {
		until(t, "the other is ready", func() bool { _, of := get(kind, "other"); return of.State == source.Ready })
		if _, of := get(kind, "site"); of.Artifact.Revision != first[kind] {
			t.Errorf("%s: %s while suspended", kind, of.Artifact.Revision)
		}
	}
	each("resume")
	each("reconcile")
	follow(first)
	for _, kind := range kinds {
		u, _ := get(kind, "site")
		seen, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		handled, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
		if seen != u.GetGeneration() || handled == "" || !slices.Contains(u.GetFinalizers(), "finalizers.fluxcd.io") {
			t.Errorf("%s: %v %q", kind, u.Object["status"], u.GetFinalizers())
		}
	}
	if u, of := get("helmrepositories", "static"); fmt.Sprint(u.Object["status"]) != "map[observedGeneration:-1]" || len(u.GetFinalizers()) > 0 || of.State != source.Ready {
		t.Errorf("of type oci: %v %q %s", u.Object["status"], u.GetFinalizers(), of.State)
	}
	for _, kind := range slices.Backward(kinds) {
		for _, name := range []string{"site", "other"} {
			admin.must(t, 0, "delete", kind, name, "--yes")
			until(t, "it is deleted", func() bool { u, _ := get(kind, name); return u.Object == nil })
		}
	}
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
