package commitstatus

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/jobs"
)

// TestDescribe: the text of a failed status has the kind of the error and no host, address or path.
func TestDescribe(t *testing.T) {
	t.Parallel()
	dial := errors.New(`Get "https://grafana.corp.internal:6446/apis": dial tcp 10.9.8.7:6443: connect: connection refused`)
	errs := []api.JobSummary{{Error: 2, Create: 1, ResourceErrors: []api.ResourceIssue{
		{Reason: "ResourceInvalid", Path: "customers/acme.json", Message: dial.Error()}, {Message: "x"}}}}
	for want, s := range map[string]forge.CommitStatus{
		"sync failed: unavailable": describe(api.StateError, &jobs.TransientError{Err: dial}, nil),
		"sync failed: auth": describe(api.StateError, fmt.Errorf("a: %w", &git.Error{Kind: git.Auth, URL: "ssh://git@git.corp.internal/a", Err: dial}),
			nil),
		"sync failed: path not found":                  describe(api.StateError, &git.Error{Kind: git.PathNotFound, Err: dial}, errs),
		"sync failed: forbidden":                       describe(api.StateError, apierrors.NewForbidden(schema.GroupResource{}, "n", dial), nil),
		"sync failed: other":                           describe(api.StateError, &fs.PathError{Op: "open", Path: "/srv/acme", Err: fs.ErrPermission}, nil),
		"2 errors (ResourceInvalid, other), 1 created": describe(api.StateError, nil, errs),
	} {
		if s.Text != want || s.State != forge.CommitFailure {
			t.Errorf("%+v, want %q", s, want)
		}
	}
}
