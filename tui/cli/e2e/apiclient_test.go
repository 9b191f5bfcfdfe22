package e2e

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apiClient is a user of the API server beside the agents. Its errors fail the test.
type apiClient struct {
	*kube.Client
	t         *testing.T
	namespace string
}

// connectUser connects as the named user, with a default namespace for create and list.
func connectUser(t *testing.T, s *testenv.Server, user, namespace string) *apiClient {
	t.Helper()
	client, err := kube.Connect(t.Context(), kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.TokenOf(user),
		UserAgent: user})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &apiClient{client, t, namespace}
}

// kindOfResource has the kinds of the resources that tests create.
var kindOfResource = map[schema.GroupVersionResource]string{api.Repositories: "Repository", api.Jobs: "Job"}

// newObject returns an object of the provisioning group, labelled with its repository.
func newObject(resource schema.GroupVersionResource, name string, labels map[string]string,
	spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(resource.GroupVersion().String())
	u.SetKind(kindOfResource[resource])
	u.SetName(name)
	all := map[string]string{}
	for k, v := range labels {
		all[k] = v
	}
	if repository, ok := spec["repository"].(string); ok {
		all[api.LabelRepository] = repository
	}
	u.SetLabels(all)
	return u
}

// create creates an object; nil when the name is taken.
func (c *apiClient) create(resource schema.GroupVersionResource, name string, labels map[string]string,
	spec map[string]any) *unstructured.Unstructured {
	c.t.Helper()
	u, err := c.Resource(resource).Namespace(c.namespace).Create(c.t.Context(), newObject(resource, name, labels, spec),
		metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		c.t.Fatalf("create %s %s: %v", resource.Resource, name, err)
	}
	return u
}

// list returns all objects of the namespace.
func (c *apiClient) list(resource schema.GroupVersionResource) []unstructured.Unstructured {
	c.t.Helper()
	list, err := c.Resource(resource).Namespace(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// archived counts the HistoricJobs by the UID of their job.
func (c *apiClient) archived() map[string]int {
	c.t.Helper()
	times := map[string]int{}
	for _, o := range c.list(api.HistoricJobs) {
		times[o.GetLabels()[api.LabelOriginalUID]]++
	}
	return times
}

// gitRepository is the spec of a Repository that is pulled from a URL.
func gitRepository(name, url, branch string, interval time.Duration) map[string]any {
	return map[string]any{"title": name, "type": "git", "workflows": []any{},
		"git":  map[string]any{"url": url, "branch": branch, "path": testenv.Directory},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(interval / time.Second)}}
}

// disabledRepository is one whose sync is off: a pull of it is claimed, runs and ends as
// error at once. Nothing in limpet does less.
func disabledRepository(name string) map[string]any {
	spec := gitRepository(name, "https://git.invalid/"+name+".git", testenv.Branch, time.Hour)
	spec["sync"].(map[string]any)["enabled"] = false
	return spec
}

// pullJob is the spec of a pull.
func pullJob(repository string, incremental bool) map[string]any {
	return map[string]any{"action": "pull", "repository": repository, "pull": map[string]any{"incremental": incremental}}
}

// secretFiles are the files and directories of a home that hold secrets by purpose.
var secretFiles = []string{"token", "subject", "credentials", "tls"}

// noSecret looks for secrets in everything else below a home, and in a log.
func (h *home) noSecret(t *testing.T, log string, secrets ...string) {
	t.Helper()
	if found := holds([]byte(log), secrets...); found != "" {
		t.Errorf("the log has the secret %s", found)
	}
	err := filepath.WalkDir(h.dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(secretFiles, d.Name()) && d.IsDir():
			return filepath.SkipDir
		case slices.Contains(secretFiles, d.Name()) || !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(file)
		if found := holds(data, secrets...); found != "" {
			t.Errorf("%s has the secret %s", file, found)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// holds returns the first secret that a text has, plain or as in an
// Authorization header of the user git; "" when there is none.
func holds(text []byte, secrets ...string) string {
	for _, secret := range secrets {
		basic := base64.StdEncoding.EncodeToString([]byte("git:" + secret))
		for _, form := range []string{secret, strings.TrimRight(basic, "=")} {
			if bytes.Contains(text, []byte(form)) {
				return form
			}
		}
	}
	return ""
}
