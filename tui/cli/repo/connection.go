package repo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

// ConnectionCommand is 'limpet connection'.
type ConnectionCommand struct {
	List connectionListCmd `cmd:"" help:"All connections."`
	Show connectionShowCmd `cmd:"" help:"One connection, and the repositories that use it."`
	Test connectionTestCmd `cmd:"" help:"Test the identity of a connection at its host now."`
}

type connectionListCmd struct {
	Limit uint `help:"Maximum number; 0 = all." default:"0"`
}

func (c connectionListCmd) Run(ctx context.Context, e *command.Env) error {
	now := time.Now()
	t := command.Table{Columns: []string{"NAME", "TYPE", "HEALTH", "REASON", "USED BY", "TOKEN", "AGE"},
		Wide: []string{"TITLE", "HOST", "MESSAGE"}}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		users, err := object.ConnectionUsers(ctx, s, e.Flags.ListNamespace())
		if err != nil {
			return err
		}
		return e.PrintObjects(ctx, s, []command.Resource{api.Connections}, "", nil, c.Limit, t, func(u *unstructured.Unstructured) ([]string, error) {
			one, err := api.ConnectionView(u)
			var ready api.Condition
			if i := slices.IndexFunc(one.Status.Conditions, func(c api.Condition) bool { return c.Type == "Ready" }); i >= 0 {
				ready = one.Status.Conditions[i]
			}
			if ready.Status == "True" {
				ready.Message = ""
			}
			return []string{u.GetName(), text.OrDash(one.Spec.Type), healthText(one.Status.Health), text.OrDash(ready.Reason), users.Count(u),
				text.OrDash(expiryText(now, one.Status.Token)), command.Since(now, u.GetCreationTimestamp().Time),
				text.OrDash(one.Spec.Title), text.OrDash(text.Redact(connectionHost(one.Spec))), text.OrDash(ready.Message)}, err
		})
	})
}

func connectionHost(spec api.ConnectionSpec) string {
	switch {
	case spec.GitHubEnterprise != nil:
		return spec.GitHubEnterprise.ServerURL
	case spec.EnterpriseOAuth != nil:
		return spec.EnterpriseOAuth.ServerURL
	}
	return spec.URL
}

// expiryText describes when a token expires, "" when that is unknown or never.
func expiryText(now time.Time, token api.TokenStatus) string {
	at := api.TimeOfMillis(token.Expiration)
	switch {
	case at.IsZero():
		return ""
	case !at.After(now):
		return "expired"
	}
	return "ends in " + text.Age(at.Sub(now))
}

type connectionShowCmd struct {
	Name string `arg:"" help:"Name of the connection."`
}

func (c connectionShowCmd) Run(ctx context.Context, e *command.Env) error {
	needs := command.Needs{API: true}
	return e.WithObject(ctx, needs, api.Connections, c.Name, func(s *command.Session, u *unstructured.Unstructured) error {
		one, err := api.ConnectionView(u)
		if err != nil {
			return err
		}
		users, err := object.ConnectionUsers(ctx, s, u.GetNamespace())
		if err != nil {
			return err
		}
		return e.PrintOne(u.Object, "connection/"+u.GetName(), func(w io.Writer) { showConnection(w, u, one, users, time.Now()) })
	})
}

func showConnection(w io.Writer, u *unstructured.Unstructured, one api.Connection, users object.Users, now time.Time) {
	var f command.Fields
	f.Add("connection", u.GetNamespace()+"/"+u.GetName())
	f.Add("title", text.OrDash(one.Spec.Title))
	f.Add("type", one.Spec.Type)
	f.AddSet("host", text.Redact(connectionHost(one.Spec)))
	for _, app := range []*api.GitHubApp{one.Spec.GitHub, one.Spec.GitHubEnterprise} {
		if app != nil {
			f.Add("app", app.AppID+", installation "+app.InstallationID)
		}
	}
	for _, field := range []string{"privateKey", "clientSecret", "token"} {
		if value, ok := one.Secure[field]; ok {
			f.Add("secure."+field, text.OrDash(value.Name))
		}
	}
	addHealth(&f, one.Status.Health)
	f.AddTime("checked", api.TimeOfMillis(one.Status.Health.Checked))
	addToken(&f, now, one.Status.Token)
	addConditions(&f, one.Status.Conditions, one.Status.FieldErrors)
	if users == nil {
		f.Add("used by", "not known: repositories may not be listed")
	} else {
		f.Add("used by", cmp.Or(strings.Join(users.Of(u), ", "), "no repository"))
	}
	f.Write(w)
}

func healthText(h api.HealthState) string {
	switch {
	case h.Checked == 0:
		return "unchecked"
	case h.Healthy:
		return "healthy"
	}
	return "failing"
}

func addHealth(f *command.Fields, h api.HealthState) {
	f.AddState("health", healthText(h), strings.TrimSuffix(healthText(h)+": "+strings.Join(h.Message, "; "), ": "))
}

func addToken(f *command.Fields, now time.Time, token api.TokenStatus) {
	if txt := expiryText(now, token); txt != "" {
		f.AddState("token", txt, txt+", "+api.TimeOfMillis(token.Expiration).UTC().Format(time.RFC3339))
	}
}

func addConditions(f *command.Fields, conditions []api.Condition, faults []api.FieldError) {
	for _, c := range conditions {
		f.AddState("condition", command.ConditionState(snapshot.Condition{Type: c.Type, Status: c.Status}),
			fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	for _, e := range faults {
		if !slices.ContainsFunc(conditions, func(c api.Condition) bool { return c.Message == e.Detail }) {
			f.Add("fault", strings.TrimSpace(e.Type+" "+e.Detail))
		}
	}
}
