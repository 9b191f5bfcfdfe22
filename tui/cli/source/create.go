package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/api/admission"
	"limpet/sync/source"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/bucket"
	"limpet/sync/source/kind/gitrepository"
	"limpet/sync/source/kind/helmchart"
	"limpet/sync/source/kind/helmrepository"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type createCmd struct {
	Name string `arg:"" help:"Name of the source."`
	ofKind
	URL          string        `help:"URL of the Git repository: https, ssh or http; of an OCIRepository: oci; of a HelmRepository: https, http or oci."`
	Insecure     bool          `help:"Plain http, of an OCIRepository, a Bucket or a HelmRepository of type oci."`
	Type         string        `help:"Type of a HelmRepository: default or oci." enum:",default,oci" default:"" placeholder:"TYPE"`
	Bucket       string        `name:"bucket-name" help:"Name of the bucket, of a Bucket." placeholder:"NAME"`
	Endpoint     string        `help:"Host and port of the store of a Bucket." placeholder:"HOST"`
	Provider     string        `help:"Whose identity a Bucket, an OCIRepository or a HelmRepository of type oci takes: generic, aws, azure or gcp." enum:",generic,aws,azure,gcp" default:"" placeholder:"NAME"`
	Region       string        `help:"Region of a Bucket." placeholder:"NAME"`
	Prefix       string        `help:"Take only the objects of a Bucket that begin with this." placeholder:"TEXT"`
	Chart        string        `help:"Name of the chart of a HelmChart; its directory, where --source has files."`
	Version      string        `help:"Version or range of versions of a HelmChart. Default: the newest." placeholder:"RANGE"`
	Source       string        `help:"What a HelmChart is in: helmrepository/NAME, gitrepository/NAME or bucket/NAME." placeholder:"KIND/NAME"`
	ValuesFile   []string      `name:"values-file" help:"Values file of a HelmChart, instead of its values.yaml; a later one comes on top." sep:"none" placeholder:"FILE"`
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
	VerifySecret string        `name:"verify-secret" help:"Secret of the namespace with the public keys of who may sign." placeholder:"NAME"`
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

// kindFlags are the flags of one kind.
type kindFlags struct {
	needs  []string
	takes  []string        // besides those and the ones that all kinds take
	next   string          // what follows in the command of an error
	reader controller.Kind // reads a spec as the controller does, without a request
}

// kindsOf has the flags of each kind.
var kindsOf = map[string]kindFlags{
	"GitRepository": {
		needs: []string{"url"},
		takes: []string{"branch", "tag", "semver", "commit", "ref-name", "secret", "git-token-file", "ignore", "include", "sparse",
			"recurse-submodules", "verify", "verify-secret"},
		reader: gitrepository.New(gitrepository.Options{}),
	},
	"OCIRepository": {
		needs:  []string{"url"},
		takes:  []string{"tag", "semver", "secret", "ignore", "verify-secret", "insecure", "provider"},
		next:   " --tag TAG",
		reader: ocirepository.New(ocirepository.Options{}),
	},
	"Bucket": {
		needs:  []string{"bucket-name", "endpoint"},
		takes:  []string{"provider", "region", "prefix", "secret", "ignore", "insecure"},
		reader: bucket.New(bucket.Options{}),
	},
	"HelmRepository": {
		needs:  []string{"url"},
		takes:  []string{"type", "secret", "insecure", "provider"},
		reader: helmrepository.New(helmrepository.Options{}),
	},
	"HelmChart": {
		needs:  []string{"chart", "source"},
		takes:  []string{"version", "values-file", "verify-secret"},
		reader: helmchart.New(helmchart.Options{}),
	},
}

// ofAll are the fields of the flags that all kinds take, or that count with another one.
var ofAll = []string{"Name", "ofKind", "Interval", "TokenUser", "SinkDir", "Wait", "DryRun"}

// check refuses a flag that the kind does not take, and one that it lacks. next is the command of an error.
func (of kindFlags) check(c createCmd, kind, next string) error {
	given := reflect.ValueOf(c)
	for field, value := range given.Fields() {
		name := cmp.Or(field.Tag.Get("name"), strings.ToLower(field.Name))
		switch set, needed := !value.IsZero(), slices.Contains(of.needs, name); {
		case slices.Contains(ofAll, field.Name):
		case set && !needed && !slices.Contains(of.takes, name):
			return command.Usagef(next, "--%s does not belong to --kind %s, which takes --%s", name, strings.ToLower(kind),
				strings.Join(slices.Concat(of.needs, of.takes), ", --"))
		case needed && !set:
			return command.Usagef(next, "missing --%s", name)
		}
	}
	return nil
}

// object returns the source of the flags, and the Secret of its token; nil = it needs none.
func (c createCmd) object(e *command.Env) (u, secret *unstructured.Unstructured, err error) {
	kind, err := c.kind()
	if err != nil {
		return nil, nil, err
	}
	if kind.Kind == "ExternalArtifact" {
		return nil, nil, command.Usagef("limpet help sources", "an ExternalArtifact is made by the annotation %s of its source", api.AnnoExternalArtifact)
	}
	flags := kindsOf[kind.Kind]
	next := "limpet source create " + text.ShellWord(c.Name)
	values := map[string]string{"url": cmp.Or(c.URL, "URL"), "bucket-name": cmp.Or(c.Bucket, "NAME"), "endpoint": cmp.Or(c.Endpoint, "HOST"),
		"chart": cmp.Or(c.Chart, "CHART"), "source": cmp.Or(c.Source, "helmrepository/NAME")}
	for _, name := range flags.needs {
		next += " --" + name + " " + text.ShellWord(values[name])
	}
	git := kind.Kind == "GitRepository"
	if !git {
		next += " --kind " + kind.Singular + flags.next
	}
	if err := flags.check(c, kind.Kind, next); err != nil {
		return nil, nil, err
	}
	from, name, found := strings.Cut(c.Source, "/")
	within, known := api.SourceKind(from)
	oci := c.Type == "oci"
	switch {
	case c.Source != "" && (!found || !known || name == ""):
		return nil, nil, command.Usagef(next, "--source %q is not KIND/NAME, such as helmrepository/NAME", c.Source)
	case kind.Kind == "HelmRepository" && oci != strings.HasPrefix(c.URL, "oci://"):
		return nil, nil, command.Usagef(next+" --type oci", "--type oci and an oci:// URL belong together")
	case kind.Kind == "HelmRepository" && !oci && (c.Insecure || c.Provider != ""):
		return nil, nil, command.Usagef(next, "--insecure and --provider are for --type oci; else write http:// in --url")
	case c.Interval <= 0:
		return nil, nil, command.Usagef(next, "--interval %s is not a period", c.Interval)
	case c.Verify != "" && c.VerifySecret == "":
		return nil, nil, command.Usagef(next+" --verify "+c.Verify+" --verify-secret NAME", "missing --verify-secret: the keys of who may sign")
	case git && c.Branch+c.Tag+c.SemVer+c.Commit+c.RefName == "":
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
	case c.VerifySecret != "" && !git:
		verify["provider"] = "cosign"
	case c.VerifySecret != "":
		verify["mode"] = cmp.Or(c.Verify, "HEAD")
	}
	spec := set(map[string]any{"url": c.URL, "interval": c.Interval.String(), "secretRef": set(map[string]any{"name": c.Secret}),
		"ref":  set(map[string]any{"branch": c.Branch, "tag": c.Tag, "semver": c.SemVer, "commit": c.Commit, "name": c.RefName}),
		"type": c.Type, "bucketName": c.Bucket, "endpoint": c.Endpoint, "provider": c.Provider, "region": c.Region, "prefix": c.Prefix,
		"chart": c.Chart, "version": c.Version, "sourceRef": set(map[string]any{"kind": within.Kind, "name": name}),
		"valuesFiles": c.ValuesFile, "insecure": c.Insecure, "ignore": c.Ignore, "include": includes, "sparseCheckout": c.Sparse, "recurseSubmodules": c.Submodules,
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
	if _, err = flags.reader.Read(u); err != nil {
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
