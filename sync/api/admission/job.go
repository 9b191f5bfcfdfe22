package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
)

// JobActions are all actions of Grafana's Job type, in its order.
var JobActions = []string{
	"pull", "push", "pr", "migrate", "delete", "move", "fixFolderMetadata", "releaseResources", "deleteResources", "test",
}

// maxJobResources limits a job. Source: Grafana's job validator.
const maxJobResources = 100

func validateJob(root node) {
	spec := root.object("spec")
	action, known := spec.enum("action", JobActions)
	validateDNSName(spec, "repository", "the name of the Repository to work on")
	if len(spec.text("repository")) > validation.LabelValueMaxLength {
		spec.add(field.TooLong(spec.path.Child("repository"), spec.text("repository"), validation.LabelValueMaxLength))
	}
	if !known {
		return
	}
	switch action {
	case "releaseResources", "deleteResources":
		return
	case "fixFolderMetadata":
		spec.object(action).check("ref", checkBranch)
		return
	}
	options := spec.object(action)
	if !spec.has(action) {
		spec.required(action, "the action is "+action+", so its options belong here")
		return
	}
	switch action {
	case "push", "migrate":
		options.check("branch", checkBranch)
		options.check("path", checkPath)
		validateExported(options)
	case "delete":
		validateSelection(options)
	case "move":
		validateSelection(options)
		if target := options.text("targetPath"); target == "" {
			options.required("targetPath", "the directory to move to, ending in a slash")
		} else if target != "" && !strings.HasSuffix(target, "/") {
			options.invalid("targetPath", "must be a directory, with a slash at its end")
		}
		options.check("targetPath", checkPath)
	case "test":
		validateLoad(options)
	}
}

// Bounds of test jobs. Source: Grafana's job validator.
const (
	maxLoad        = 15 * time.Minute
	maxLoadUpdates = 1000
	minLoadSpacing = 500 * time.Millisecond
)

func validateLoad(options node) {
	took, err := time.ParseDuration(options.text("duration"))
	switch {
	case options.text("duration") == "":
		options.required("duration", "how long the job lasts, such as 90s")
	case err != nil:
		options.invalid("duration", "must be a duration such as 90s or 5m")
	case took <= 0 || took > maxLoad:
		options.invalid("duration", "must be more than 0s, and at most "+maxLoad.String())
	}
	switch n := options.integer("progressUpdates"); {
	case n < 0 || n > maxLoadUpdates:
		options.invalid("progressUpdates", fmt.Sprintf("must be from 0 to %d", maxLoadUpdates))
	case n > 0 && took > 0 && took/time.Duration(n) < minLoadSpacing:
		options.invalid("progressUpdates", fmt.Sprintf("must be at most %d for this duration: one each %s", took/minLoadSpacing, minLoadSpacing))
	}
}

// validateExported checks the resources of a push or a migrate; none means all that are not managed
// yet.
func validateExported(options node) {
	resources := options.objects("resources")
	if len(resources) > maxJobResources {
		options.add(field.TooMany(options.path.Child("resources"), len(resources), maxJobResources))
		return
	}
	for _, ref := range resources {
		validateResourceRef(ref)
		if kind := ref.text("kind"); kind != "" && kind != "Dashboard" {
			ref.add(field.NotSupported(ref.path.Child("kind"), kind, []string{"Dashboard"}))
		}
		if group := ref.text("group"); group != "" && group != api.DashboardGroup {
			ref.add(field.NotSupported(ref.path.Child("group"), group, []string{api.DashboardGroup}))
		}
	}
}

func validateSelection(options node) {
	paths, resources := options.texts("paths"), options.objects("resources")
	if len(paths)+len(resources) == 0 {
		options.required("paths", "at least one path or resource must be named")
	}
	options.check("ref", checkBranch)
	for i, path := range paths {
		at := options.path.Child("paths").Index(i)
		if path == "" {
			options.add(field.Required(at, "a path must not be empty"))
		} else if err := checkPath(path); err != nil {
			options.add(field.Invalid(at, path, err.Error()))
		}
	}
	for _, ref := range resources {
		validateResourceRef(ref)
	}
}

func validateResourceRef(ref node) {
	for _, name := range []string{"name", "kind"} {
		if ref.text(name) == "" {
			ref.required(name, "a resource is named by name and kind")
		}
	}
}

// branchOptions are the options that name the branch to which an action writes; "" is that of the
// Repository.
var branchOptions = map[string]string{"push": "branch", "migrate": "branch", "delete": "ref", "move": "ref", "fixFolderMetadata": "ref"}

// CheckWorkflow returns why a Repository does not allow a job of this spec to write. A Repository
// allows "write" to its own branch and "branch" to others. While its own has no name yet, only a
// job that names no branch is known to write there.
func CheckWorkflow(repo api.RepositorySpec, spec map[string]any) error {
	action, _ := spec["action"].(string)
	option, writes := branchOptions[action]
	if !writes {
		return nil
	}
	ref, _, _ := unstructured.NestedString(spec, action, option)
	needs := "write"
	if block := repo.Block(); ref != "" && block != nil && block.Branch != ref {
		needs = "branch"
		if block.Branch == "" && slices.Contains(repo.Workflows, "write") {
			return nil
		}
	}
	if slices.Contains(repo.Workflows, needs) {
		return nil
	}
	return fmt.Errorf("%s writes to %s, and spec.workflows of the repository lacks %q", action, cmp.Or(ref, "its own branch"), needs)
}

// authorAnnotations are immutable.
var authorAnnotations = []string{
	api.ProvisioningGroup + "/author",
	api.ProvisioningGroup + "/authorEmail",
	api.ProvisioningGroup + "/authorId",
	api.ProvisioningGroup + "/authorID",
	api.ProvisioningGroup + "/authorOrigin",
}

// ChangedAuthor returns the author annotation that an update changes, or "".
func ChangedAuthor(annotations, old map[string]string) string {
	i := slices.IndexFunc(authorAnnotations, func(key string) bool { return annotations[key] != old[key] })
	if i < 0 {
		return ""
	}
	return authorAnnotations[i]
}

// JobOption is an option of a job as users give it, on the command line and in the dashboard.
type JobOption struct {
	Name   string // of the flag
	Help   string
	Needed bool
	Many   bool   // it takes several values
	Switch bool   // it takes true or false
	member string // of the options of the action; "" = of the spec, by Name
	parse  func(values []string) (any, error)
}

// JobForm is what users decide on when they create a job of an action.
type JobForm struct {
	Options []JobOption
	Then    string // what the job writes or deletes; "" = nothing that deserves a question
}

var (
	messageOption  = JobOption{Name: "message", parse: one, Help: "message of the commit"}
	branchOption   = JobOption{Name: "branch", member: "branch", parse: one, Help: "default: that of the repository"}
	refOption      = JobOption{Name: "ref", member: "ref", parse: one, Help: "branch; default: that of the repository"}
	resourceOption = JobOption{Name: "resource", member: "resources", parse: resourceRefs, Many: true, Help: "such as dashboard/cpu"}
	pathsOption    = JobOption{Name: "path", member: "paths", parse: list, Many: true, Help: "files, or directories with a slash at the end"}
)

// JobForms has the actions that users create jobs of.
var JobForms = map[string]JobForm{
	"pull": {},
	"push": {[]JobOption{branchOption, {Name: "path", member: "path", parse: one, Help: "directory to write to"}, resourceOption,
		messageOption}, "Commits objects that no repository manages to Git, as new files."},
	"migrate": {[]JobOption{branchOption, resourceOption, messageOption,
		{Name: "skip-resource-deletion", member: "skipResourceDeletion", parse: yes, Switch: true, Help: "to another branch: keep the objects"},
		{Name: "generate-new-folder-ids", member: "generateNewFolderIDs", parse: yes, Switch: true, Help: "give folders new UIDs"},
	}, "Commits objects to Git as files. The repository manages them from then on."},
	"delete": {[]JobOption{pathsOption, resourceOption, refOption, messageOption},
		"Deletes files in Git, and then the objects that were made from them."},
	"move": {[]JobOption{pathsOption, resourceOption, {Name: "target-path", member: "targetPath", parse: one, Needed: true,
		Help: "directory, with a slash at its end"}, refOption, messageOption},
		"Moves files in Git, and then the objects that were made from them."},
	"fixFolderMetadata": {[]JobOption{refOption, messageOption}, "Commits a _folder.json to each directory without one."},
	"releaseResources":  {nil, "Takes all objects from the repository. They stay, without a manager."},
	"deleteResources":   {nil, "Deletes all objects that the repository has made."},
	"test": {[]JobOption{{Name: "duration", member: "duration", parse: one, Needed: true, Help: "such as 90s; at most 15m"},
		{Name: "progress-updates", member: "progressUpdates", parse: number, Help: "number of messages, at most 1000"}}, ""},
}

func one(values []string) (any, error) { return values[len(values)-1], nil }

func list(values []string) (any, error) {
	var out []any
	for _, v := range values {
		out = append(out, v)
	}
	return out, nil
}

func yes(values []string) (any, error) {
	on, err := strconv.ParseBool(values[0])
	if err != nil {
		return nil, fmt.Errorf("is %q; it is true or false", values[0])
	}
	return on, nil
}

func number(values []string) (any, error) {
	n, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("is %q; it must be a number", values[0])
	}
	return n, nil
}

// resourceRefs reads kind/name.
func resourceRefs(values []string) (any, error) {
	var out []any
	for _, v := range values {
		kind, name, ok := strings.Cut(v, "/")
		if !ok || kind == "" || name == "" {
			return nil, fmt.Errorf("is %q; it must be KIND/NAME, such as dashboard/cpu", v)
		}
		for _, known := range []string{"Dashboard", "Folder"} {
			if strings.EqualFold(kind, known) || strings.EqualFold(kind, known+"s") {
				kind = known
			}
		}
		out = append(out, map[string]any{"kind": kind, "name": name})
	}
	return out, nil
}

// JobSpec returns the spec of a job from the options that are given, by their names. Its errors
// name an option as a flag.
func JobSpec(action string, given map[string][]string) (map[string]any, error) {
	if action == "pr" {
		return nil, fmt.Errorf("webhooks make the jobs of pull requests; by hand --spec needs ref, pr, hash and url")
	}
	form, ok := JobForms[action]
	known := form.Options
	if !ok {
		return nil, fmt.Errorf("unknown action %q; there are %s", action, strings.Join(JobActions, ", "))
	}
	spec, options := map[string]any{"action": action}, map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(known, func(o JobOption) bool { return o.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--%s is no option of --action %s%s", name, action, optionsText(action, known))
		}
		value, err := known[i].parse(given[name])
		if err != nil {
			return nil, fmt.Errorf("--%s %w", name, err)
		}
		if known[i].member == "" {
			spec[name] = value
		} else {
			options[known[i].member] = value
		}
	}
	for _, o := range known {
		if o.Needed && len(given[o.Name]) == 0 {
			return nil, fmt.Errorf("--action %s needs --%s", action, o.Name)
		}
	}
	if (action == "delete" || action == "move") && len(given["path"])+len(given["resource"]) == 0 {
		return nil, fmt.Errorf("--action %s needs --path or --resource", action)
	}
	if len(known) > 0 || action == "pull" {
		spec[action] = options
	}
	return spec, CheckJobSpec(spec)
}

func optionsText(action string, known []JobOption) string {
	var names []string
	if action == "pull" { // they are no options of its spec alone
		names = []string{"--full", "--incremental", "--allow-mass-delete"}
	}
	for _, o := range known {
		names = append(names, "--"+o.Name)
	}
	if len(names) == 0 {
		return ", which has none"
	}
	return ", which has " + strings.Join(names, ", ")
}

// CheckJobSpec returns what the server's admission would refuse in the spec of a job, whatever its
// repository.
func CheckJobSpec(spec map[string]any) error {
	job := &unstructured.Unstructured{Object: map[string]any{"spec": maps.Clone(spec)}}
	job.Object["spec"].(map[string]any)["repository"] = "name"
	job.SetGroupVersionKind(api.Jobs.GroupVersion().WithKind("Job"))
	return Check(job, nil).ToAggregate()
}
