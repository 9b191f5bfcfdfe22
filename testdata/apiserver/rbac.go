package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/scheme"
)

// accountPrefix is how the names of ServiceAccounts begin.
const accountPrefix = "system:serviceaccount:"

// grants are the rules of each ServiceAccount.
type grants map[string][]grant

// grant is a rule in a namespace; "" is all of them.
type grant struct {
	namespace string
	rule      rbacv1.PolicyRule
}

// readGrants reads manifests as a cluster does that is strict about fields, and returns the rules of
// the ServiceAccounts among them.
func readGrants(file string) (grants, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	roles, known := map[string][]rbacv1.PolicyRule{}, grants{}
	var objects []runtime.Object
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		object, kind, decodeErr := decoder.Decode(document, nil, nil)
		if err = errors.Join(err, decodeErr); err != nil {
			return nil, fmt.Errorf("read %s: %w\n%s", file, err, document)
		}
		objects = append(objects, object)
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			roles[kind.Kind+"//"+o.Name] = o.Rules
		case *rbacv1.Role:
			roles[kind.Kind+"/"+o.Namespace+"/"+o.Name] = o.Rules
		case *corev1.ServiceAccount:
			known[accountPrefix+o.Namespace+":"+o.Name] = nil
		}
	}
	bind := func(namespace string, role rbacv1.RoleRef, subjects []rbacv1.Subject) error {
		of := ""
		if role.Kind == "Role" {
			of = namespace
		}
		rules, there := roles[role.Kind+"/"+of+"/"+role.Name]
		for _, s := range subjects {
			account := accountPrefix + s.Namespace + ":" + s.Name
			if _, is := known[account]; !is || !there {
				return fmt.Errorf("%s: a binding of %s to %s, of which one is not there", file, role.Name, account)
			}
			for _, rule := range rules {
				known[account] = append(known[account], grant{namespace, rule})
			}
		}
		return nil
	}
	for _, object := range objects {
		var err error
		switch o := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			err = bind("", o.RoleRef, o.Subjects)
		case *rbacv1.RoleBinding:
			err = bind(o.Namespace, o.RoleRef, o.Subjects)
		}
		if err != nil {
			return nil, err
		}
	}
	return known, nil
}

// allows reports whether a rule of an account allows a request, as the authorizer of Kubernetes
// judges it. Everybody may ask what the server has.
func (g grants) allows(account string, a authorizer.Attributes) bool {
	if !a.IsResourceRequest() {
		return a.GetVerb() == "get" && slices.Contains([]string{"api", "apis", "openapi", "version", "readyz"},
			strings.Split(strings.Trim(a.GetPath(), "/"), "/")[0])
	}
	resource := a.GetResource()
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, "*") }
	return slices.ContainsFunc(g[account], func(g grant) bool {
		return (g.namespace == "" || g.namespace == a.GetNamespace()) && has(g.rule.Verbs, a.GetVerb()) &&
			has(g.rule.APIGroups, a.GetAPIGroup()) && has(g.rule.Resources, resource) &&
			(len(g.rule.ResourceNames) == 0 || slices.Contains(g.rule.ResourceNames, a.GetName()))
	})
}
