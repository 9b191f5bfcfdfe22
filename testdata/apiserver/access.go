package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// accessHeader carries an exchanged token. Grafana's clients send it instead of
// Authorization.
const accessHeader = "X-Access-Token"

// access decides who is asking and what is refused. Whoever has the token of
// the administrator, or an exchanged one, may do all that no rule denies.
type access struct {
	token string
	sign  *signer
	deny  rules
	allow grants // of ServiceAccounts, which may do nothing else
}

// AuthenticateRequest accepts the static token, with or without a name behind it
// (userOf), which may be that of a ServiceAccount, as a bearer or access token, and exchanged tokens whose audiences hold the group that is asked for.
func (a *access) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	for _, header := range []string{"Authorization", accessHeader} {
		token, ok := strings.CutPrefix(r.Header.Get(header), "Bearer ")
		if !ok {
			continue
		}
		if name, named := strings.CutPrefix(token, a.token+"."); named && strings.HasPrefix(name, accountPrefix) {
			return as(name), true, nil
		}
		if token == a.token || strings.HasPrefix(token, a.token+".") {
			return as("admin"), true, nil
		}
		claims, err := a.sign.verify(token)
		if err != nil {
			return nil, false, fmt.Errorf("read %s: %w", header, err)
		}
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest &&
			!slices.Contains(claims.Audience, info.APIGroup) {
			return nil, false, fmt.Errorf("token is for %s, not for %s", claims.Audience, info.APIGroup)
		}
		return as(claims.Subject), true, nil
	}
	return nil, false, nil
}

func as(name string) *authenticator.Response {
	return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}}
}

// authorize allows what no rule denies. The server's own loopback client is
// never denied anything.
func (a *access) authorize(_ context.Context, attr authorizer.Attributes) (authorizer.Decision, string, error) {
	if name := attr.GetUser().GetName(); strings.HasPrefix(name, accountPrefix) && !a.allow.allows(name, attr) {
		return authorizer.DecisionDeny, "no rule allows it", nil
	}
	if attr.GetUser().GetName() != user.APIServerUser && attr.IsResourceRequest() {
		for _, rule := range a.deny {
			if rule.matches(attr) {
				return authorizer.DecisionDeny, "denied by the test", nil
			}
		}
	}
	return authorizer.DecisionAllow, "", nil
}

// rule names requests; * stands for every verb, resource or namespace. A
// subresource is named as in RBAC: repositories/status.
type rule struct{ verb, resource, namespace string }

func (r rule) matches(attr authorizer.Attributes) bool {
	resource := attr.GetResource()
	if attr.GetSubresource() != "" {
		resource += "/" + attr.GetSubresource()
	}
	return (r.verb == "*" || r.verb == attr.GetVerb()) &&
		(r.resource == "*" || r.resource == resource) &&
		(r.namespace == "*" || r.namespace == attr.GetNamespace())
}

// rules is a flag that may be given several times.
type rules []rule

func (r *rules) String() string { return fmt.Sprint(*r) }

// Set adds one rule.
func (r *rules) Set(text string) error {
	f := strings.Fields(text)
	if len(f) != 3 {
		return fmt.Errorf("rule %q is not VERB RESOURCE NAMESPACE", text)
	}
	*r = append(*r, rule{f[0], f[1], f[2]})
	return nil
}
