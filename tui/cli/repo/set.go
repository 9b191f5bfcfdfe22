package repo

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/object"
)

type setCmd struct {
	Name      string         `arg:"" help:"Name of the repository."`
	URL       *string        `help:"URL of the Git repository. A stored token has to be given again."`
	Branch    *string        `help:"Branch; empty = the default branch of the remote." xor:"ref"`
	Unpin     bool           `help:"Pull again what was pulled before 'limpet repo rollback'." xor:"pin"`
	Path      *string        `help:"Directory below the root of the repository; empty = the root."`
	Title     *string        `help:"Title."`
	Target    *string        `help:"Where objects land: folder, folderless or instance; not once something was synced."`
	Interval  *time.Duration `help:"Period of pulls."`
	Enabled   *bool          `negatable:"" help:"Pull by the interval."`
	TokenUser *string        `help:"User name that goes with the token."`
	Workflows *string        `help:"What is written: write (its branch), branch (others); empty = nothing." placeholder:"write,branch"`
	Force     bool           `help:"Change a repository that a file of --manifests declares, too."`

	annotationFlags
	credentialFlags
}

// members are those of a Repository that flags set; block is the part of its type.
type members struct{ block, spec, sync, notes, secure map[string]any }

// change returns the members that the flags set.
func (c setCmd) change(e *command.Env) (members, error) {
	help := "limpet repo set --help"
	notes, err := c.annotations()
	if err != nil {
		return members{}, command.Usagef(help, "%w", err)
	}
	if c.Ref != nil {
		notes[api.AnnoGitRefUnpinned] = nil
	}
	secure, err := c.secure(e, help)
	if err != nil {
		return members{}, err
	}
	m := members{block: map[string]any{}, spec: map[string]any{}, sync: map[string]any{}, notes: notes, secure: secure}
	for _, f := range []struct {
		to    map[string]any
		name  string
		value *string
	}{
		{m.block, "url", c.URL}, {m.block, "branch", c.Branch}, {m.block, "path", c.Path},
		{m.block, "tokenUser", c.TokenUser}, {m.spec, "title", c.Title}, {m.sync, "target", c.Target},
	} {
		if f.value != nil {
			f.to[f.name] = *f.value
		}
	}
	if c.Enabled != nil {
		m.sync["enabled"] = *c.Enabled
	}
	if c.Workflows != nil {
		m.spec["workflows"] = workflows(*c.Workflows)
	}
	if c.Interval != nil {
		if m.sync["intervalSeconds"] = int64(*c.Interval / time.Second); *c.Interval < time.Second || *c.Interval%time.Second != 0 {
			return m, command.Usagef(help, "--interval %s is not a number of whole seconds", *c.Interval)
		}
	}
	for _, part := range []map[string]any{m.block, m.spec} { // an empty text removes a member
		for name, value := range part {
			if value == "" {
				part[name] = nil
			}
		}
	}
	return m, nil
}

func (c setCmd) Run(ctx context.Context, e *command.Env) error {
	m, err := c.change(e)
	if err != nil {
		return err
	}
	if len(m.block)+len(m.spec)+len(m.sync)+len(m.notes)+len(m.secure) == 0 && !c.Unpin {
		return command.Usagef("limpet repo set --help", "nothing to set: give at least one flag")
	}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		return patchRepository(ctx, e, s, c.Name, "configured", func(u *unstructured.Unstructured) (map[string]any, error) {
			repo, err := api.RepositoryView(u)
			if err = cmp.Or(err, ownedByFile(u, "set "+text.ShellWord(c.Name), c.Force)); err != nil {
				return nil, err
			}
			if c.Unpin {
				if repo.Pinned() == "" {
					return nil, command.Usagef(command.CommandFor(u.GetNamespace(), "repo show "+c.Name), "repository %s is not pinned", c.Name)
				}
				m.notes[api.AnnoGitRef], m.notes[api.AnnoGitRefUnpinned] = nil, nil
				if before := api.Annotation(u, api.AnnoGitRefUnpinned); before != "" {
					m.notes[api.AnnoGitRef] = before
				}
			} else if repo.Pinned() != "" && c.Ref == nil {
				e.Notef("it stays pinned to %s, until: %s", text.ShortRef(repo.Pinned()),
					e.CommandFor(u.GetNamespace(), "repo set "+c.Name+" --unpin"))
			}
			change := map[string]any{"spec": m.spec, "metadata": map[string]any{"annotations": m.notes}}
			if len(m.block) > 0 {
				m.spec[repo.Spec.Type] = m.block
			}
			if len(m.sync) > 0 {
				m.spec["sync"] = m.sync
			}
			if len(m.secure) > 0 {
				change["secure"] = m.secure
			}
			return change, nil
		})
	})
}

// ownedByFile refuses a change of a repository that a file of --manifests declares, unless it is
// forced.
func ownedByFile(u *unstructured.Unstructured, call string, force bool) error {
	return object.OwnedByFile(u, command.KindOf(api.Repositories), "repo "+call, force)
}

// patchTries is how often a patch is tried while others write to the object, such as its status.
const patchTries = 5

// patchRepository writes a change as one patch with the UID and the resourceVersion, and prints the
// result.
func patchRepository(ctx context.Context, e *command.Env, s *command.Session, name, done string,
	change func(*unstructured.Unstructured) (map[string]any, error)) error {
	for try := 1; ; try++ {
		u, err := e.FindObject(ctx, s, api.Repositories, name)
		if err != nil {
			return err
		}
		patch, err := change(u)
		if err != nil {
			return err
		}
		meta := patch["metadata"].(map[string]any)
		meta["uid"], meta["resourceVersion"] = u.GetUID(), u.GetResourceVersion()
		body, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		made, err := s.Client.Resource(api.Repositories).Namespace(u.GetNamespace()).Patch(ctx, name, types.MergePatchType, body,
			metav1.PatchOptions{FieldManager: "limpet", FieldValidation: metav1.FieldValidationStrict})
		switch {
		case apierrors.IsConflict(err) && try < patchTries:
			continue
		case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
			return command.Usagef("limpet repo set --help", "%w", err)
		case err != nil:
			return err
		}
		noteInterval(e, patch, made)
		made.SetManagedFields(nil)
		return e.PrintDone(made.Object, "repository/"+name, "repository/%s %s", name, done)
	}
}

// noteInterval notes that the API has stored another interval in place of a shorter one.
func noteInterval(e *command.Env, given map[string]any, made *unstructured.Unstructured) {
	asked, _, _ := unstructured.NestedInt64(given, "spec", "sync", "intervalSeconds")
	if stored, _, _ := unstructured.NestedInt64(made.Object, "spec", "sync", "intervalSeconds"); asked != 0 && asked != stored {
		e.Notef("warning: interval %ds is too short: stored as %ds", asked, stored)
	}
}
