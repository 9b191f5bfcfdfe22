package resources

import (
	"fmt"

	"limpet/sync/api"
)

// managedByRepo is the manager kind of objects that belong to a Repository.
const managedByRepo = "repo"

// OwnershipError reports that an object has another manager. It is a warning:
// the object is left alone.
type OwnershipError struct {
	Object     Identity
	Repository string // that wanted to write it
	Manager    string // kind and name of the owner; "" when it has none
}

func (e *OwnershipError) Error() string {
	if e.Manager == "" {
		return fmt.Sprintf("%s exists and is not managed by a repository; rename it in the file, or delete or migrate it on the server", e.Object)
	}
	return fmt.Sprintf("%s is managed by %s, not by repository %q", e.Object, e.Manager, e.Repository)
}

// Manages reports whether the annotations name repository as the manager.
func Manages(repository string, annotations map[string]string) bool {
	return annotations[api.AnnoManagedBy] == managedByRepo && annotations[api.AnnoManagerID] == repository
}

// CheckOwner returns nil when repository may write the object with these
// annotations: it is the manager, or there is one that allows edits. Otherwise
// it returns an *OwnershipError.
func CheckOwner(repository string, id Identity, annotations map[string]string) error {
	managed := annotations[api.AnnoManagedBy] != "" || annotations[api.AnnoManagerID] != ""
	if managed && annotations[api.AnnoManagerAllowsEdits] == "true" {
		return nil
	}
	return checkManaged(repository, id, annotations)
}

// checkManaged is CheckOwner for what only the manager may do.
func checkManaged(repository string, id Identity, annotations map[string]string) error {
	kind, name := annotations[api.AnnoManagedBy], annotations[api.AnnoManagerID]
	switch {
	case Manages(repository, annotations):
		return nil
	case kind == "" && name == "":
		return &OwnershipError{Object: id, Repository: repository}
	}
	return &OwnershipError{Object: id, Repository: repository, Manager: fmt.Sprintf("%s %q", kind, name)}
}
