// Package manifests has the command that prints an agent for Kubernetes: its Deployment, with the
// rights that its settings need and no more.
package manifests

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"limpet/tui/cli/command"
	"limpet/tui/cli/config"
)

// Command is 'limpet manifests'.
type Command struct {
	Name      string `default:"limpet" help:"Name of the objects."`
	In        string `default:"limpet" help:"Namespace of the Deployment; --namespace is that of the jobs." placeholder:"NAMESPACE"`
	Image     string `help:"Image of the container. Default: limpet:VERSION." placeholder:"IMAGE"`
	Storage   string `help:"Size of a volume for the state file, such as 1Gi. Default: none, it goes with the pod." placeholder:"SIZE"`
	NoSecrets bool   `help:"No right to read Secrets: credentials are in --credentials-dir, or none are needed."`
	NoPolicy  bool   `name:"no-network-policy" help:"No NetworkPolicy."`
}

// Places in the container. Of the Secret with the name of the objects, each key is a file, and
// config.yaml is where the agent looks for its config.
const (
	stateDir   = "/var/lib/limpet"
	secretDir  = "/etc/limpet"
	clusterDir = "/etc/limpet-cluster"
	account    = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// imageUser is the user of the image.
const imageUser = 65532

// clusterConfig is the kubeconfig of a pod.
const clusterConfig = `apiVersion: v1
kind: Config
current-context: cluster
clusters:
  - {name: cluster, cluster: {server: "https://kubernetes.default.svc", certificate-authority: ` + account + `/ca.crt}}
contexts:
  - {name: cluster, context: {cluster: cluster, user: pod}}
users:
  - {name: pod, user: {tokenFile: ` + account + `/token}}
`

type object = map[string]any

func (c Command) Run(e *command.Env, call *kong.Context) error {
	args, err := c.args(e, call)
	if err != nil {
		return err
	}
	rules, err := rulesOf(e.Flags, !c.NoSecrets)
	if err != nil {
		return err
	}
	objects := []object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": c.In}},
		c.object("v1", "ServiceAccount", nil),
	}
	objects = append(objects, c.roles(e.Flags, rules)...)
	objects = append(objects, c.object("v1", "ConfigMap", object{"data": object{"kubeconfig": clusterConfig}}))
	if c.Storage != "" {
		objects = append(objects, c.object("v1", "PersistentVolumeClaim", object{"spec": object{
			"accessModes": []string{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": c.Storage}}}}))
	}
	objects = append(objects, c.object("apps/v1", "Deployment", object{"spec": c.deployment(e.Flags, args)}))
	if !c.NoPolicy {
		objects = append(objects, c.object("networking.k8s.io/v1", "NetworkPolicy", object{"spec": c.policy(e.Flags)}))
	}
	return c.print(e, objects)
}

func (c Command) print(e *command.Env, objects []object) error {
	var items []any
	var documents []string
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		items, documents = append(items, o), append(documents, string(text))
	}
	if e.Flags.Output != "table" && e.Flags.Output != "wide" {
		var t command.Table
		for _, o := range objects {
			t.Add("", strings.ToLower(o["kind"].(string))+"/"+c.Name)
		}
		return e.PrintList(items, t)
	}
	_, err := io.WriteString(e.Out, strings.Join(documents, "---\n"))
	return err
}

// object is a namespaced object.
func (c Command) object(version, kind string, rest object) object {
	o := object{"apiVersion": version, "kind": kind, "metadata": object{"name": c.Name, "namespace": c.In, "labels": c.labels()}}
	maps.Copy(o, rest)
	return o
}

func (c Command) labels() object {
	return object{"app.kubernetes.io/name": "limpet", "app.kubernetes.io/instance": c.Name}
}

// setFlags are settings that the container has in its own way.
var setFlags = []string{"state", "kubeconfig", "token", "telemetry-listen", "provisioning-server-url"}

// hostFlags are settings of a call, and none of an agent.
var hostFlags = []string{"config", "context", "output", "help", "no-headers", "color", "quiet", "timeout", "json", "yes", "read-only",
	"accessible"}

// args checks the flags of the command and returns those of the agent: what was given with this call.
func (c Command) args(e *command.Env, call *kong.Context) (args []string, err error) {
	for flag, name := range map[string]string{"name": c.Name, "in": c.In} {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return nil, command.Usagef("limpet manifests --in limpet", "--%s %q: %s", flag, name, wrong[0])
		}
	}
	if size, err := resource.ParseQuantity(cmp.Or(c.Storage, "1Gi")); err != nil || size.Sign() <= 0 {
		return nil, command.Usagef("limpet manifests --storage 1Gi", "--storage %q is no size", c.Storage)
	}
	if e.Flags.Manifests != "" {
		return nil, command.Usagef("kubectl apply -f DIR", "--manifests: the objects of a cluster have no need of it")
	}
	files := false
	for _, flag := range call.Model.Node.Flags {
		from, set := config.SettingOf(e, call, flag).Kind, slices.Contains(setFlags, flag.Name)
		if set && from == command.FromFlag {
			return nil, command.Usagef("limpet help kubernetes", "--%s: the container has its own, for the API of its cluster", flag.Name)
		}
		if set || from == command.FromDefault || slices.Contains(hostFlags, flag.Name) {
			continue
		}
		if flag.Name == "notify" || flag.Name == "heartbeat" {
			return nil, command.Usagef("limpet help kubernetes", "--%s: a Deployment shows it to all who read it; "+
				"it belongs in config.yaml of the Secret %s", flag.Name, c.Name)
		}
		values, isList := flag.Target.Interface().([]string)
		if !isList {
			values = []string{fmt.Sprint(config.Shown(flag.Target))}
		}
		for _, value := range values {
			if (flag.PlaceHolder == "FILE" || flag.PlaceHolder == "DIR") && !strings.HasPrefix(path.Clean(value), secretDir+"/") {
				return nil, command.Usagef("limpet manifests --"+flag.Name+" "+secretDir+"/"+flag.Name,
					"--%s: the container has no %s; %s has the keys of the Secret %s", flag.Name, value, secretDir, c.Name)
			}
			files = files || flag.PlaceHolder == "FILE"
			args = append(args, "--"+flag.Name+"="+value)
		}
	}
	if !files { // else they are not on this host
		_, err = e.AgentConfig(nil, "", e.Log)
	}
	return args, err
}

// deployment is one agent: another one would have a state file of its own. Its directory is one in
// the volume, which all may write to.
func (c Command) deployment(f *command.Flags, args []string) object {
	volume := object{"name": "state", "emptyDir": object{}}
	if c.Storage != "" {
		volume = object{"name": "state", "persistentVolumeClaim": object{"claimName": c.Name}}
	}
	probe := func(path string, failures int) object {
		return object{"httpGet": object{"path": path, "port": "http-prom"}, "failureThreshold": failures}
	}
	container := object{
		"name": "limpet", "image": cmp.Or(c.Image, "limpet:"+command.Version),
		"args": append([]string{"--daemon", "--state=" + stateDir + "/state/" + command.StateName, "--kubeconfig=" + clusterDir + "/kubeconfig",
			"--telemetry-listen=:9440"}, args...),
		"ports":          c.ports(f),
		"startupProbe":   probe("/healthz", 60), // a state file is verified after an unclean stop
		"livenessProbe":  probe("/healthz", 3),
		"readinessProbe": probe("/readyz", 3),
		"env":            []object{{"name": "GOMEMLIMIT", "value": "224MiB"}},
		"resources":      object{"requests": object{"cpu": "20m", "memory": "64Mi"}, "limits": object{"memory": "256Mi"}},
		"securityContext": object{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"capabilities": object{"drop": []string{"ALL"}}},
		"volumeMounts": []object{{"name": "state", "mountPath": stateDir}, {"name": "tmp", "mountPath": "/tmp"},
			{"name": "cluster", "mountPath": clusterDir, "readOnly": true}, {"name": "secret", "mountPath": secretDir, "readOnly": true}},
	}
	return object{
		"replicas": 1, "strategy": object{"type": "Recreate"}, "selector": object{"matchLabels": c.labels()},
		"template": object{"metadata": object{"labels": c.labels()}, "spec": object{
			"serviceAccountName": c.Name, "terminationGracePeriodSeconds": 90,
			"securityContext": object{"runAsNonRoot": true, "runAsUser": imageUser, "runAsGroup": imageUser, "fsGroup": imageUser,
				"seccompProfile": object{"type": "RuntimeDefault"}},
			"containers": []object{container},
			"volumes": []object{volume, {"name": "tmp", "emptyDir": object{}},
				{"name": "cluster", "configMap": object{"name": c.Name}},
				{"name": "secret", "secret": object{"secretName": c.Name, "optional": true, "defaultMode": 0o440}}},
		}},
	}
}

// ports are those that the settings open, by the names that the PodMonitor expects.
func (c Command) ports(f *command.Flags) []object {
	ports := []object{{"name": "http-prom", "containerPort": 9440}}
	for _, p := range []struct{ name, address string }{{"http-webhook", f.WebhookListen}, {"http-artifact", f.ArtifactListen}} {
		if p.address != "" {
			ports = append(ports, object{"name": p.name, "containerPort": portOf(p.address)})
		}
	}
	return ports
}

// policy lets only those ports in. Git hosts and the API may be anywhere, so that all may go out.
func (c Command) policy(f *command.Flags) object {
	var in []object
	for _, port := range c.ports(f) {
		in = append(in, object{"port": port["name"]})
	}
	return object{"podSelector": object{"matchLabels": c.labels()}, "policyTypes": []string{"Ingress", "Egress"},
		"ingress": []object{{"ports": in}}, "egress": []object{{}}}
}
