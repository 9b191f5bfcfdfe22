package agent

import (
	"context"
	"log/slog"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/repos"
)

// EmbeddedURL is the server name of requests to the embedded API. No server listens there: requests
// stay in the process.
const EmbeddedURL = "http://embedded"

// watchWindow is how many events of a kind the embedded API keeps for watches that begin in the
// past. Nearly all watches of an agent are its own and never fall behind; any other one lists
// again. Each event costs the size of its object.
const watchWindow = 128

// clients are those of the API, embedded or not.
type clients struct {
	embedded   *apiserver.Server // nil when a server is configured
	client     *kube.Client
	dashboards *kube.Client
	folders    *kube.Client
}

// connect creates the clients; close must follow, also after an error.
func (c *clients) connect(ctx context.Context, o Config) (err error) {
	cfg := o.API
	if cfg.Server == "" && cfg.Kubeconfig == "" {
		c.embedded, err = apiserver.New(o.Store, apiserver.Options{
			Logger:          o.Logger.With("component", "apiserver"),
			Version:         o.Version,
			Window:          watchWindow,
			Finalizers:      o.Controllers != "off",
			Actions:         ActionsOf(o.Jobs.Actions),
			MaxRepositories: o.Limits.quota(true).Repositories,
		})
		if err != nil {
			return err
		}
		cfg.Server, cfg.Transport = EmbeddedURL, c.embedded.Transport()
	}
	if c.client, err = kube.Connect(ctx, cfg); err != nil {
		return err
	}
	if c.dashboards, err = c.clientAt(ctx, cfg, o.Dashboards); err != nil {
		return err
	}
	c.folders, err = c.clientAt(ctx, cfg, o.Folders)
	return err
}

// requests counts those to all servers.
func (c *clients) requests() map[kube.RequestKind]int64 {
	out := map[kube.RequestKind]int64{}
	for client := range map[*kube.Client]bool{c.client: true, c.dashboards: true, c.folders: true} {
		for kind, n := range client.Requests() {
			out[kind] += n
		}
	}
	return out
}

// stored returns the objects of a kind and a namespace on the API.
func (c *clients) stored(ctx context.Context, kind, namespace string) ([]unstructured.Unstructured, error) {
	resource, ok := map[string]schema.GroupVersionResource{
		"Repository": api.Repositories, "Connection": api.Connections}[kind]
	if k, is := api.SourceKind(kind); is {
		resource, ok = k.Resource(), true
	}
	if !ok {
		return nil, nil
	}
	all, err := c.client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err): // the kind is not served
		return nil, nil
	case err != nil:
		return nil, err
	}
	return all.Items, nil
}

// ActionsOf returns the actions that an agent serves that is limited to some, nil meaning none.
func ActionsOf(limited []string) []string {
	if len(limited) > 0 {
		return limited
	}
	return api.ServedActions
}

// clientAt returns the client for a server with the same token, c.client for none.
func (c *clients) clientAt(ctx context.Context, cfg kube.Config, server string) (*kube.Client, error) {
	if server == "" {
		return c.client, nil
	}
	cfg.Server = server
	return kube.Connect(ctx, cfg)
}

// sealed returns which Secrets are secure values of the embedded API, which change with their
// objects; nil = none.
func (c *clients) sealed() func(secret string) bool {
	if c.embedded == nil {
		return nil
	}
	return apiserver.IsSealed
}

// name returns the server for people.
func (c *clients) name() string {
	if c.embedded != nil {
		return "embedded"
	}
	base, _ := c.client.Endpoint()
	return base.Redacted()
}

// handler serves the API for clients of the socket.
func (c *clients) handler(log *slog.Logger) http.Handler {
	if c.embedded != nil {
		return c.embedded
	}
	groups := map[string]*kube.Client{api.DashboardGroup: c.dashboards, api.FolderGroup: c.folders}
	return control.Proxy(c.client, groups, log.With("component", "proxy"))
}

func (c *clients) close() {
	for _, client := range []*kube.Client{c.client, c.dashboards, c.folders} {
		if client != nil {
			client.Close()
		}
	}
	if c.embedded != nil {
		c.embedded.Close()
	}
}

// Limits bound Repositories and their pulls.
type Limits struct {
	// Repositories of a namespace and Resources of one Repository; 0 means no limit. nil means no
	// limit on the embedded API, and elsewhere the limit in the status of each Repository, which
	// another controller may set.
	Repositories, Resources *int64
	// IncrementalChanges is the limit of changes for an incremental pull; 0 means no limit.
	IncrementalChanges int
	// Parallel is the number of concurrent writes of one job; 0 means 10.
	Parallel int
}

func (l Limits) quota(embedded bool) repos.Quota {
	limit := func(said *int64) int64 {
		switch {
		case said != nil:
			return *said
		case embedded:
			return 0
		}
		return repos.Stated
	}
	return repos.Quota{Repositories: limit(l.Repositories), Resources: limit(l.Resources)}
}
