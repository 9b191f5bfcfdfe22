package repo

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/worker/sink"
	"limpet/tui/cli/command"
)

type createCmd struct {
	Name      string        `arg:"" help:"Name of the repository."`
	Type      string        `help:"git, or local: a directory of files below --local-prefix of the agent." enum:"git,local" default:"git"`
	URL       string        `help:"URL: https, ssh, http, limpet+https; file:///DIR or bundle:///DIR below --local-git-prefix of the agent."`
	Branch    string        `help:"Branch. Default: the default branch of the remote." xor:"ref"`
	Path      string        `help:"Directory below the root of the repository. With --type local: the directory itself."`
	Title     string        `help:"Title. Default: the name."`
	Target    string        `help:"Where objects land: folder, folderless or instance." enum:"folder,folderless,instance" default:"folder"`
	Interval  time.Duration `help:"Period of pulls." default:"60s"`
	TokenUser string        `help:"User name that goes with the token. Default: git."`
	Workflows string        `help:"What is written: write (its branch), branch (others). Default: nothing." placeholder:"write,branch"`
	Disabled  bool          `help:"Create it without pulling."`

	annotationFlags
	credentialFlags
}

func (c createCmd) Run(ctx context.Context, e *command.Env) error {
	const next = "limpet repo create NAME --url URL    # or --type local --path DIR"
	git := map[string]any{}
	switch local := c.Type == "local"; {
	case local && (c.URL != "" || !filepath.IsAbs(c.Path)):
		return command.Usagef(next, "--type local takes an absolute --path and no --url")
	case local:
	case c.URL == "":
		return command.Usagef(next, "missing --url")
	default:
		git["url"] = c.URL
	}
	for member, value := range map[string]string{"branch": c.Branch, "path": c.Path, "tokenUser": c.TokenUser} {
		if value != "" {
			git[member] = value
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"title": cmp.Or(c.Title, c.Name), "type": c.Type, c.Type: git,
		"sync": map[string]any{"enabled": !c.Disabled, "target": c.Target, "intervalSeconds": int64(c.Interval / time.Second)},
	}}}
	if c.Workflows != "" {
		u.Object["spec"].(map[string]any)["workflows"] = workflows(c.Workflows)
	}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName(c.Name)
	if c.sinkDir() != "" && c.Strict == nil {
		c.Strict = new(true)
	}
	notes, err := c.annotations()
	if err != nil {
		return command.Usagef("limpet repo create --help", "%w", err)
	}
	for name, value := range notes {
		if value, set := value.(string); set {
			api.SetAnnotation(u, name, value)
		}
	}
	secure, err := c.secure(e, "limpet help credentials")
	if err != nil {
		return err
	}
	if len(secure) > 0 {
		u.Object["secure"] = secure
	}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		made, err := s.Client.Resource(api.Repositories).Namespace(e.Flags.OneNamespace()).Create(ctx, u, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return command.WithHint(err, command.CommandFor(e.Flags.OneNamespace(), "repo set "+c.Name+" --help")+"    # changes it")
		}
		if err != nil {
			return err
		}
		c.noteRefusal(ctx, e, s, made)
		noteInterval(e, u.Object, made)
		made.SetManagedFields(nil)
		return e.PrintDone(made.Object, "repository/"+made.GetName(), "repository/%s created", made.GetName())
	})
}

// workflows returns spec.workflows; empty = none.
func workflows(list string) (out []any) {
	for _, w := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		out = append(out, w)
	}
	return out
}

// noteRefusal warns of a URL that the agent is sure to refuse. The flags of a daemon are unknown
// here: it tests the repository.
func (c createCmd) noteRefusal(ctx context.Context, e *command.Env, s *command.Session, made *unstructured.Unstructured) {
	local := c.Type == "local" || strings.HasPrefix(c.URL, "file:") || strings.HasPrefix(c.URL, "bundle:")
	plain := strings.HasPrefix(c.URL, "http:") && c.Token != ""
	_, sinkErr := sink.Permit(c.sinkDir(), e.Flags.SinkPrefix)
	switch {
	case s.Daemon != nil && (local || plain || c.sinkDir() != ""):
		ctx, cancel := context.WithTimeout(ctx, command.RetryPause)
		defer cancel()
		if results, err := s.Daemon.Test(ctx, made); err == nil && len(results.Errors) > 0 {
			e.Notef("the agent cannot pull it: %s", results.Errors[0].Detail)
		}
	case s.Embedded != nil && c.Type == "local" && len(e.Flags.LocalPrefix) == 0:
		e.Notef("a directory is read only by an agent that is started with --local-prefix and a directory above it")
	case s.Embedded != nil && c.Type == "git" && local && len(e.Flags.LocalGitPrefix) == 0:
		e.Notef("a file:// or bundle:// URL is read only by an agent that is started with --local-git-prefix and a directory above it")
	case s.Embedded != nil && c.sinkDir() != "" && sinkErr != nil:
		e.Notef("%v", sinkErr)
	case s.Embedded != nil && plain && !e.Flags.AllowInsecureGit:
		e.Notef("a token goes over plain http only from an agent that is started with --allow-insecure-git")
	}
}
