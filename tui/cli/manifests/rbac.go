package manifests

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/repos/lease"
	"limpet/tui/cli/command"
)

// rule is a PolicyRule for one group.
func rule(group string, resources []string, verbs ...string) object {
	return object{"apiGroups": []string{group}, "resources": resources, "verbs": verbs}
}

// rulesOf are the rights that an agent with these settings needs, feature by feature.
func rulesOf(f *command.Flags, secrets bool) ([]object, error) {
	grafana, flux := api.Jobs.Group, api.GitRepositories.Group
	rules := []object{ // jobs
		rule(grafana, []string{"jobs"}, "get", "list", "watch", "create", "update", "patch", "delete"),
		rule(grafana, []string{"historicjobs"}, "list", "create", "delete"),
		rule(grafana, []string{"repositories", "connections"}, "get", "list", "watch"),
		rule(grafana, []string{"repositories/jobs"}, "create"),
		rule(grafana, []string{"repositories/resources"}, "get"),
		rule(grafana, []string{"repositories/status"}, "patch"),
		rule("", []string{"events"}, "get", "create", "patch"),
	}
	kinds, err := f.Kinds()
	if err != nil {
		return nil, err
	}
	for _, k := range kinds { // what pulls write and pushes read
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: k.Group, Kind: k.Kind})
		if k.Refused == "" {
			rules = append(rules, rule(k.Group, []string{plural.Resource}, "get", "list", "create", "update", "patch", "delete"))
		}
	}
	if secrets {
		rules = append(rules, rule("", []string{"secrets"}, "get", "watch"))
	}
	if secrets && f.Sources == "on" {
		rules = append(rules, rule("", []string{"serviceaccounts"}, "get")) // of registries
	}
	if f.Controllers == "on" {
		rules = append(rules, rule(grafana, []string{"repositories", "connections"}, "patch"),
			rule(grafana, []string{"connections/status"}, "patch"))
	}
	var sources, written []string
	for _, k := range api.SourceKinds() {
		sources, written = append(sources, k.Plural), append(written, k.Plural, k.Plural+"/status")
	}
	rules = append(rules, rule(flux, sources, "get", "list", "watch"))
	if f.Sources == "on" {
		rules = append(rules, rule(flux, written, "patch"),
			rule(flux, []string{api.ExternalArtifacts.Resource}, "create", "delete"))
	}
	return rules, nil
}

// roles grants the rules in the namespace of the jobs, or in all of them, and the Leases of its
// controllers where they are.
func (c Command) roles(f *command.Flags, rules []object) []object {
	namespace := f.ListNamespace()
	roles := c.grant(namespace, c.Name, rules...)
	if f.Controllers == "on" || f.Sources == "on" {
		leases := rule(lease.Resource.Group, []string{lease.Resource.Resource}, "get", "create", "update")
		roles = append(roles, c.grant(cmp.Or(namespace, agent.LeaseNamespace), c.Name+"-lease", leases)...)
	}
	return roles
}

// grant is a role in a namespace, or in all of them, and its binding.
func (c Command) grant(namespace, name string, rules ...object) []object {
	kind, meta := "ClusterRole", object{"name": name, "labels": c.labels()}
	if namespace != "" {
		kind, meta["namespace"] = "Role", namespace
	}
	const group = "rbac.authorization.k8s.io"
	return []object{
		{"apiVersion": group + "/v1", "kind": kind, "metadata": meta, "rules": rules},
		{"apiVersion": group + "/v1", "kind": kind + "Binding", "metadata": meta,
			"roleRef":  object{"apiGroup": group, "kind": kind, "name": name},
			"subjects": []object{{"kind": "ServiceAccount", "name": c.Name, "namespace": c.In}}},
	}
}

// portOf is the port of an address, which was checked.
func portOf(address string) int {
	_, port, _ := net.SplitHostPort(strings.TrimSpace(address))
	n, _ := strconv.Atoi(port)
	return n
}
