package repo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"limpet/tui/cli/command"
	"limpet/tui/cli/object"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
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
	s, err := e.Open(ctx, command.Needs{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	items, err := s.List(ctx, api.Connections, e.Flags.ListNamespace(), "", nil, c.Limit)
	if err != nil {
		return err
	}
	using, err := object.ConnectionUsers(ctx, s, e.Flags.ListNamespace())
	if err != nil {
		return err
	}
	now := time.Now()
	t := command.Table{Columns: []string{"NAME", "TYPE", "HEALTH", "REASON", "USED BY", "TOKEN", "AGE"},
		Wide: []string{"TITLE", "HOST", "MESSAGE"}}
	objects := []any{}
	for i := range items {
		u := &items[i]
		one, err := api.ConnectionView(u)
		if err != nil {
			return err
		}
		ready := conditionOf(one.Status.Conditions, "Ready")
		t.Add(u.GetNamespace(), "connection/"+u.GetName(),
			u.GetName(), text.OrDash(one.Spec.Type), healthText(one.Status.Health), text.OrDash(ready.Reason), using.Count(u),
			expiryText(now, one.Status.Token), command.Since(now, u.GetCreationTimestamp().Time),
			text.OrDash(one.Spec.Title), text.OrDash(text.Redact(connectionHost(one.Spec))), text.OrDash(unmetMessage(ready)))
		objects = append(objects, u.Object)
	}
	return e.PrintList(objects, t)
}

// conditionOf returns the condition of a type, an empty one when there is none.
func conditionOf(all []api.Condition, kind string) api.Condition {
	for _, c := range all {
		if c.Type == kind {
			return c
		}
	}
	return api.Condition{}
}

// unmetMessage returns the message of a condition that is not met.
func unmetMessage(c api.Condition) string {
	if c.Status == "True" {
		return ""
	}
	return c.Message
}

// connectionHost returns the address of the host where the spec names one.
func connectionHost(spec api.ConnectionSpec) string {
	switch {
	case spec.GitHubEnterprise != nil:
		return spec.GitHubEnterprise.ServerURL
	case spec.EnterpriseOAuth != nil:
		return spec.EnterpriseOAuth.ServerURL
	}
	return spec.URL
}

// expiryText describes when a token expires, "-" when that is unknown or never.
func expiryText(now time.Time, token api.TokenStatus) string {
	at := api.TimeOfMillis(token.Expiration)
	switch {
	case at.IsZero():
		return "-"
	case !at.After(now):
		return "expired"
	}
	return "ends in " + text.Age(at.Sub(now))
}

type connectionShowCmd struct {
	Name string `arg:"" help:"Name of the connection."`
}

func (c connectionShowCmd) Run(ctx context.Context, e *command.Env) error {
	s, err := e.Open(ctx, command.Needs{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := e.FindObject(ctx, s, api.Connections, c.Name)
	if err != nil {
		return err
	}
	one, err := api.ConnectionView(u)
	if err != nil {
		return err
	}
	using, err := object.ConnectionUsers(ctx, s, u.GetNamespace())
	if err != nil {
		return err
	}
	return e.PrintOne(u.Object, "connection/"+u.GetName(), func(w io.Writer) { showConnection(w, u, one, using, time.Now()) })
}

func showConnection(w io.Writer, u *unstructured.Unstructured, one api.Connection, using object.Users, now time.Time) {
	var f command.Fields
	f.Add("connection", u.GetNamespace()+"/"+u.GetName())
	f.Add("title", text.OrDash(one.Spec.Title))
	f.Add("type", one.Spec.Type)
	if host := connectionHost(one.Spec); host != "" {
		f.Add("host", text.Redact(host))
	}
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
	f.AddState("health", healthText(one.Status.Health),
		strings.TrimSuffix(healthText(one.Status.Health)+": "+strings.Join(one.Status.Health.Message, "; "), ": "))
	if at := api.TimeOfMillis(one.Status.Health.Checked); !at.IsZero() {
		f.Add("checked", at.UTC().Format(time.RFC3339))
	}
	if at := api.TimeOfMillis(one.Status.Token.Expiration); !at.IsZero() {
		f.AddState("token", expiryText(now, one.Status.Token), expiryText(now, one.Status.Token)+", "+at.UTC().Format(time.RFC3339))
	}
	addConditions(&f, one.Status.Conditions, one.Status.FieldErrors)
	switch names := using.Of(u); {
	case using == nil:
		f.Add("used by", "not known: repositories may not be listed")
	case len(names) == 0:
		f.Add("used by", "no repository")
	default:
		f.Add("used by", strings.Join(names, ", "))
	}
	f.Write(w)
}

// addConditions adds conditions and field errors of the spec.
func addConditions(f *command.Fields, conditions []api.Condition, faults []api.FieldError) {
	for _, c := range conditions {
		f.Add("condition", fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		f.Mark(c.Status, command.ConditionState(snapshot.Condition{Type: c.Type, Status: c.Status}))
	}
	for _, e := range faults {
		if slices.ContainsFunc(conditions, func(c api.Condition) bool { return c.Message == e.Detail }) {
			continue // it is in the condition
		}
		f.Add("fault", strings.TrimSpace(e.Type+" "+e.Detail))
	}
}

type connectionTestCmd struct {
	Name string `arg:"" help:"Name of the connection."`
}

// Help is the long help of the command.
func (connectionTestCmd) Help() string {
	return "Nothing is written. A daemon that holds the state file is asked, because the credentials are there."
}

func (c connectionTestCmd) Run(ctx context.Context, e *command.Env) error {
	return e.WithTester(ctx, func(s *command.Session, who control.Tester) error {
		u, err := e.FindObject(ctx, s, api.Connections, c.Name)
		if err != nil {
			return err
		}
		results, err := who.Test(ctx, u)
		if err != nil {
			return err
		}
		return e.PrintResults(results, "connection/"+u.GetName(), command.CommandFor(u.GetNamespace(), "connection test "+u.GetName()))
	})
}
