package repos

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/reconcile"
	"limpet/sync/worker/checkout"
)

// Uses are what the objects of an agent use: what objects name, and the files of the rules of its
// configuration.
type Uses struct {
	Watcher  *dependency.Watcher
	Rules    *auth.List[auth.Rule]
	Policies *auth.List[auth.VerificationPolicy]
	Sealed   func(secret string) bool // see dependency.Reader: these change with their object
}

// Use is a reconcile.UseFunc.
func (d Uses) Use(kind string, k reconcile.Key, obj *unstructured.Unstructured) {
	user := dependency.Ref{Kind: kind, Namespace: k.Namespace, Name: k.Name}
	if obj == nil {
		d.Watcher.Use(user)
		return
	}
	refs := slices.DeleteFunc(dependency.Of(obj), func(r dependency.Ref) bool {
		return d.Sealed != nil && r.Kind == dependency.Secret && d.Sealed(r.Name)
	})
	for _, path := range d.ruleFiles(obj) {
		refs = append(refs, dependency.Ref{Kind: dependency.Path, Name: path})
	}
	d.Watcher.Use(user, refs...)
}

// ruleFiles returns the files of the rules that give a Repository its credentials and signers.
func (d Uses) ruleFiles(u *unstructured.Unstructured) (files []string) {
	rules, policies := d.Rules.Get(), d.Policies.Get()
	if len(rules)+len(policies) == 0 {
		return nil
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return nil
	}
	urls := checkout.URLs(repo)
	for _, rule := range auth.PoliciesFor(policies, u.GetNamespace(), u.GetName(), urls...) {
		files = append(files, rule.Paths()...)
	}
	for _, url := range urls {
		files = append(files, auth.RuleFiles(rules, url)...)
	}
	return files
}
