package agent

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/forge"
	"limpet/sync/repos"
	"limpet/sync/worker"
)

// dependencies declares the dependencies of Repositories and Connections.
type dependencies struct{ *access }

// Use implements repos.Dependencies. Values that the embedded API stores for an
// object change with the object.
func (d dependencies) Use(kind string, k repos.Key, obj *unstructured.Unstructured) {
	user := dependency.Ref{Kind: kind, Namespace: k.Namespace, Name: k.Name}
	if obj == nil {
		d.references.Use(user)
		return
	}
	refs := slices.DeleteFunc(dependency.Of(obj), func(r dependency.Ref) bool {
		return d.embedded != nil && r.Kind == dependency.Secret && apiserver.IsSealed(r.Name)
	})
	for _, path := range d.ruleFiles(obj) {
		refs = append(refs, dependency.Ref{Kind: dependency.Path, Name: path})
	}
	d.references.Use(user, refs...)
}

// ruleFiles returns the files of the rules that give a Repository its credentials and
// signers.
func (a *access) ruleFiles(u *unstructured.Unstructured) []string {
	if len(a.cfg.GitRules)+len(a.cfg.Policies) == 0 {
		return nil
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		return nil
	}
	var files []string
	urls := worker.URLs(repo)
	for _, rule := range auth.PoliciesFor(a.cfg.Policies, u.GetNamespace(), u.GetName(), urls...) {
		files = append(files, rule.Paths()...)
	}
	for _, url := range urls {
		files = append(files, auth.RuleFiles(a.cfg.GitRules, url)...)
	}
	return files
}

// wakeUser reconciles an object whose credentials changed, and the Repositories of a
// Connection. Tokens of the old credentials are dropped.
func (a *Agent) wakeUser(user dependency.Ref) {
	switch user.Kind {
	case dependency.Repository:
		a.repoController.Recheck(user.Namespace, user.Name)
	case dependency.Connection:
		if u, ok := a.connections.Get(user.Namespace, user.Name); ok {
			if c, err := forge.ConnectionOf(u); err == nil {
				a.minter.Forget(c)
			}
		}
		a.connectionController.Recheck(user.Namespace, user.Name)
		a.references.Changed(user)
	}
}
