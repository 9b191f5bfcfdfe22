package monitoring

import (
	"strings"

	"sigs.k8s.io/yaml"

	"limpet/sync/metrics"
	"limpet/tui/cli/command"
)

type ksmCmd struct {
	Form string `enum:"values,config,rbac" default:"values" help:"values of the Helm chart kube-prometheus-stack, the config file of kube-state-metrics alone, or its rbac for kubectl." placeholder:"FORM"`
}

func (c ksmCmd) Run(e *command.Env) error {
	var document any
	switch c.Form {
	case "config":
		document = customResourceState()
	case "rbac":
		document = role()
	default:
		document = helmValues()
	}
	text, err := yaml.Marshal(document)
	if err != nil {
		return err
	}
	return printText(e, "kube-state-metrics-"+c.Form+".yaml", string(text))
}

type object = map[string]any

// customResourceState is the configuration with which kube-state-metrics exports what the agent
// exports itself: both read the same table.
func customResourceState() object {
	var resources []object
	for _, kind := range metrics.Kinds {
		labels := object{"exported_namespace": []string{"metadata", "namespace"}}
		for _, l := range kind.Labels {
			labels[l.Name] = l.Path
		}
		prefix, name, _ := strings.Cut(metrics.InfoName, "_")
		resources = append(resources, object{
			"groupVersionKind": object{"group": kind.Resource.Group, "version": kind.Resource.Version, "kind": kind.Kind},
			"metricNamePrefix": prefix,
			"metrics": []object{{
				"name": name,
				"help": "The current state of a " + kind.Kind + ".", // a common help loses kinds
				"each": object{"type": "Info", "info": object{"labelsFromPath": object{"name": []string{"metadata", "name"}}}},

				"labelsFromPath": labels,
			}},
		})
	}
	return object{"kind": "CustomResourceStateMetrics", "spec": object{"resources": resources}}
}

// rules are the rights that it takes: to list and watch what is exported.
func rules() (rules []object) {
	var groups []string
	resources := map[string][]string{}
	for _, kind := range metrics.Kinds {
		group := kind.Resource.Group
		if resources[group] == nil {
			groups = append(groups, group)
		}
		resources[group] = append(resources[group], kind.Resource.Resource)
	}
	for _, group := range groups {
		rules = append(rules, object{"apiGroups": []string{group}, "resources": resources[group], "verbs": []string{"list", "watch"}})
	}
	return rules
}

// role is the same for a kube-state-metrics without Helm, which looks for the definitions itself.
func role() object {
	definitions := object{"apiGroups": []string{"apiextensions.k8s.io"}, "resources": []string{"customresourcedefinitions"},
		"verbs": []string{"list", "watch"}}
	return object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": "kube-state-metrics-limpet"},
		"rules": append(rules(), definitions),
	}
}

func helmValues() object {
	return object{"kube-state-metrics": object{
		"collectors":          []string{},
		"extraArgs":           []string{"--custom-resource-state-only=true"},
		"rbac":                object{"extraRules": rules()},
		"customResourceState": object{"enabled": true, "config": customResourceState()},
	}}
}
