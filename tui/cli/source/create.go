package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/source"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type createCmd struct {
	Name string `arg:"" help:"Name of the source."`
	ofKind
	URL          string        `help:"URL of the Git repository: https, ssh or http; of an OCIRepository: oci."`
	Insecure     bool          `help:"Plain http, of an OCIRepository."`
	Branch       string        `help:"Branch. Default: main."`
	Tag          string        `help:"Follow a tag instead."`
	SemVer       string        `name:"semver" help:"Follow the newest tag in a range of versions, such as 1.x." placeholder:"RANGE"`
	Commit       string        `help:"Stay at a commit; with --branch it has to be on that branch."`
	RefName      string        `name:"ref-name" help:"Follow any ref by its full name, such as refs/pull/7/head." placeholder:"REF"`
	Interval     time.Duration `help:"Period of checks." default:"1m"`
	Secret       string        `help:"Secret of the namespace with the credentials, in the format of Flux." xor:"secret" placeholder:"NAME"`
	TokenFrom    string        `name:"git-token-file" help:"Token file; - is stdin. Stored as a Secret." xor:"secret" placeholder:"FILE"`
	TokenUser    string        `help:"User name that goes with the token." default:"git"`
	Ignore       string        `help:"Files to leave out, in the format of .gitignore; @FILE reads it from a file." placeholder:"TEXT"`
	Include      []string      `help:"Include the artifact of another source, or a directory of it." sep:"none" placeholder:"NAME[:FROM[:TO]]"`
	Sparse       []string      `help:"Take this directory only." sep:"none" placeholder:"DIR"`
	Submodules   bool          `name:"recurse-submodules" help:"Take the content of submodules too."`
	Verify       string        `help:"Required: HEAD, Tag or TagAndHEAD." enum:",head,HEAD,Tag,TagAndHEAD" default:"" placeholder:"MODE"`
	VerifySecret string        `help:"Secret of the namespace with the public keys of who may sign." placeholder:"NAME"`
	SinkDir      string        `name:"sink-dir" help:"Write the tree to this directory, under a --sink-prefix of the agent." placeholder:"DIR"`
	Wait         bool          `short:"w" help:"Wait until it is ready, at most 5m or --timeout."`
	DryRun       bool          `help:"Check it, and write nothing; -o yaml prints it."`
}

// set returns the members of an object that are not empty; nil when none is.
func set(members map[string]any) any {
	maps.DeleteFunc(members, func(_ string, v any) bool { return v == nil || reflect.ValueOf(v).IsZero() })
	if len(members) == 0 {
		return nil
	}
	return members
}

// object returns the source of the flags, and the Secret of its token; nil = it needs none.
func (c createCmd) object(e *command.Env) (u, secret *unstructured.Unstructured, err error) {
	next := "limpet source create " + text.ShellWord(c.Name) + " --url " + text.ShellWord(cmp.Or(c.URL, "URL"))
	kind, err := c.kind()
	oci := kind.Kind == "OCIRepository"
	switch {
	case err != nil:
		return nil, nil, err
	case kind.Kind == "ExternalArtifact":
		return nil, nil, command.Usagef("limpet help sources", "an ExternalArtifact is made by the annotation %s of its source", api.AnnoExternalArtifact)
	case !oci && kind.Kind != "GitRepository":
		return nil, nil, command.Usagef("limpet apply -f FILE", "a %s is made of a file", kind.Kind)
	case oci && (c.Branch+c.Commit+c.RefName+c.TokenFrom+c.Verify != "" || len(c.Include)+len(c.Sparse) > 0 || c.Submodules):
		return nil, nil, command.Usagef(next+" --kind ocirepository --tag TAG",
			"an OCIRepository takes --url, --tag, --semver, --interval, --secret, --ignore, --verify-secret, --insecure and --sink-dir alone")
	case c.Insecure && !oci:
		return nil, nil, command.Usagef(next, "--insecure is for --kind ocirepository; for Git write http:// in --url")
	case c.URL == "":
		return nil, nil, command.Usagef(next, "missing --url")
	case c.Interval <= 0:
		return nil, nil, command.Usagef(next, "--interval %s is not a period", c.Interval)
	case c.Verify != "" && c.VerifySecret == "":
		return nil, nil, command.Usagef(next+" --verify "+c.Verify+" --verify-secret NAME", "missing --verify-secret: the keys of who may sign")
	case !oci && c.Branch+c.Tag+c.SemVer+c.Commit+c.RefName == "":
		c.Branch = "main"
	}
	if file, ok := strings.CutPrefix(c.Ignore, "@"); ok {
		data, err := e.ReadFile(file)
		if err != nil {
			return nil, nil, command.Usagef(next+" --ignore @FILE", "read --ignore: %w", err)
		}
		c.Ignore = string(data)
	}
	var includes []any
	for _, one := range c.Include {
		parts := append(strings.SplitN(one, ":", 3), "", "")
		includes = append(includes, set(map[string]any{"repository": map[string]any{"name": parts[0]}, "fromPath": parts[1], "toPath": parts[2]}))
	}
	namespace := e.Flags.OneNamespace()
	if c.TokenFrom != "" {
		data, err := e.ReadFile(c.TokenFrom)
		if err == nil && strings.TrimSpace(string(data)) == "" {
			err = errors.New(c.TokenFrom + " is empty")
		}
		if err != nil {
			return nil, nil, command.Usagef(next+" --git-token-file FILE    # - is stdin", "read the token: %w", err)
		}
		text.RegisterSecret(data)
		c.Secret = c.Name + "-git"
		secret = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata":   map[string]any{"name": c.Secret, "namespace": namespace},
			"stringData": map[string]any{"username": c.TokenUser, "password": strings.TrimSpace(string(data))}}}
	}
	verify := map[string]any{"mode": c.Verify, "secretRef": set(map[string]any{"name": c.VerifySecret})}
	switch {
	case c.VerifySecret != "" && oci:
		verify["provider"] = "cosign"
	case c.VerifySecret != "":
		verify["mode"] = cmp.Or(c.Verify, "HEAD")
	}
	spec := set(map[string]any{"url": c.URL, "interval": c.Interval.String(), "secretRef": set(map[string]any{"name": c.Secret}),
		"ref":      set(map[string]any{"branch": c.Branch, "tag": c.Tag, "semver": c.SemVer, "commit": c.Commit, "name": c.RefName}),
		"insecure": c.Insecure, "ignore": c.Ignore, "include": includes, "sparseCheckout": c.Sparse, "recurseSubmodules": c.Submodules,
		"verify": set(verify)})
	body, err := json.Marshal(map[string]any{"apiVersion": kind.APIVersion(), "kind": kind.Kind,
		"metadata": map[string]any{"name": c.Name, "namespace": namespace}, "spec": spec})
	u = new(unstructured.Unstructured)
	if err == nil {
		err = u.UnmarshalJSON(body)
	}
	if err != nil {
		return nil, nil, err
	}
	if c.SinkDir != "" {
		api.SetAnnotation(u, api.AnnoSinkDir, c.SinkDir)
	}
	if errs := admission.Check(u, nil); len(errs) > 0 {
		return nil, nil, command.Usagef("limpet source create --help", "%w", errs.ToAggregate())
	}
	if oci {
		_, err = ocirepository.New(ocirepository.Options{}).Read(u)
	} else {
		_, err = source.ReadGit(u)
	}
	if err != nil {
		return nil, nil, command.Usagef("limpet source create --help", "%w", err)
	}
	return u, secret, nil
}

func (c createCmd) Run(ctx context.Context, e *command.Env) error {
	u, secret, err := c.object(e)
	if err != nil {
		return err
	}
	return e.With(ctx, command.Needs{API: true}, func(s *command.Session) error {
		if c.Wait && !c.DryRun {
			if err := e.NeedsAgent(s, "reconcile the source"); err != nil {
				return err
			}
		}
		// A dry run comes first, so that a source that the API refuses leaves no Secret behind.
		kind := kindOf(u).Resource()
		made, err := c.create(ctx, s, kind, u, metav1.DryRunAll)
		switch {
		case err != nil:
			return err
		case c.DryRun:
			return e.PrintDone(source.Redacted(made), title(u), "%s created (dry run)", title(u))
		case secret != nil:
			if _, err := c.create(ctx, s, api.Secrets, secret); err != nil {
				return err
			}
		}
		if made, err = c.create(ctx, s, kind, u); err != nil {
			return err
		}
		if !c.Wait {
			return printAsked(e, s, made, "created")
		}
		return printReady(ctx, e, s, made, "ready")
	})
}

// create creates one object, or with a dry run has the API check it.
func (c createCmd) create(ctx context.Context, s *command.Session, kind command.Resource, u *unstructured.Unstructured, dry ...string) (
	*unstructured.Unstructured, error) {
	made, err := s.Client.Resource(kind).Namespace(u.GetNamespace()).Create(ctx, u.DeepCopy(),
		metav1.CreateOptions{FieldManager: "limpet", FieldValidation: metav1.FieldValidationStrict, DryRun: dry})
	switch {
	case apierrors.IsAlreadyExists(err) && kind != api.Secrets:
		return nil, command.WithHint(err, command.CommandFor(u.GetNamespace(), "source show "+text.ShellWord(c.Name)+flag(u)))
	case apierrors.IsAlreadyExists(err):
		return nil, command.WithHint(err, command.CommandFor(u.GetNamespace(), "source create "+text.ShellWord(c.Name)+" --url "+
			text.ShellWord(c.URL)+" --secret "+text.ShellWord(u.GetName())))
	case apierrors.IsNotFound(err) && kind != api.Secrets:
		return nil, command.WithHint(err, "limpet crds | kubectl apply -f -    # where the API does not know "+kind.Resource)
	case err != nil:
		return nil, err
	}
	made.SetManagedFields(nil)
	return made, nil
}
