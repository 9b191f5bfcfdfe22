package admission

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

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

// JobSpec returns the spec of a job from the options that are given, by their names. Its errors name an option as a flag.
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

// CheckJobSpec returns what the server's admission would refuse in the spec of a job, whatever its repository.
func CheckJobSpec(spec map[string]any) error {
	job := &unstructured.Unstructured{Object: map[string]any{"spec": maps.Clone(spec)}}
	job.Object["spec"].(map[string]any)["repository"] = "name"
	job.SetGroupVersionKind(api.Jobs.GroupVersion().WithKind("Job"))
	return Check(job, nil).ToAggregate()
}
