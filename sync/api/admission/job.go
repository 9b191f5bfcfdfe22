package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"

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

// validateExported checks the resources of a push or a migrate; none means all that are not managed yet.
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

// validateSelection checks what a delete or a move names.
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
