// Package admission validates the provisioning objects: their fields, their updates, and their
// relations to each other. It makes no calls. The embedded API, the controllers and the commands
// use the same rules.
//
// An error names a wrong value together with a right one, and never repeats a value that may hold a
// secret.
package admission

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
	"limpet/sync/auth"
	"limpet/sync/signature"
)

// Check checks an object of the provisioning group, a source or a core Secret as the
// server's admission does. Each error has the path, the bad value and the remedy. old is the stored
// object that obj replaces, nil for a new one. Of other kinds only the metadata is checked.
//
// An object that is being deleted is not checked: its finalizers must be removable whatever else is
// wrong with it.
func Check(obj, old *unstructured.Unstructured) field.ErrorList {
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		return nil
	}
	path := field.NewPath("metadata") // names are checked by the verbs, which know the rule of each kind
	errs := metavalidation.ValidateLabels(obj.GetLabels(), path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(obj.GetAnnotations(), path.Child("annotations"))...)
	errs = append(errs, apivalidation.ValidateFinalizers(obj.GetFinalizers(), path.Child("finalizers"))...)
	switch gvk := obj.GroupVersionKind(); {
	case gvk.Group == api.ProvisioningGroup:
		errs = append(errs, validateKind(obj, old)...)
	case gvk.Group == api.GitRepositories.Group:
		validateSource(obj, old, rootNode(obj, &errs))
	case gvk.Group == "" && gvk.Kind == "Secret":
		validateSecret(old, rootNode(obj, &errs))
	}
	for _, err := range errs {
		if text, ok := err.BadValue.(string); ok && len(text) > maxBadValue {
			err.BadValue = strings.ToValidUTF8(text[:maxBadValue], "") + "…"
		}
	}
	return errs
}

// maxBadValue bounds how much of a wrong text an error repeats, in bytes: errors go into answers
// and statuses.
const maxBadValue = 200

// validateKind applies the rules of the kind alone.
func validateKind(obj, old *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	root := rootNode(obj, &errs)
	var err error // of the view: no rule reads all members
	switch obj.GetKind() {
	case "Repository":
		validateRepository(obj, old, root)
		validateSecure(root.object("secure"), SecureNames(old))
		_, err = api.RepositoryView(obj)
	case "Connection":
		validateConnection(root)
		if old != nil {
			validateConnectionChange(obj, old, root.object("secure"))
		}
		validateSecure(root.object("secure"), SecureNames(old))
		_, err = api.ConnectionView(obj)
	case "Job":
		validateJob(root)
		_, err = api.JobView(obj)
	case "HistoricJob":
		for _, name := range []string{"action", "repository"} { // the rest was checked when the job was created
			if spec := root.object("spec"); spec.text(name) == "" {
				spec.required(name, "a record of a job names its "+name)
			}
		}
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && len(errs) == 0 && !strings.HasPrefix(wrong.Field, "status") {
		errs = append(errs, field.TypeInvalid(field.NewPath(wrong.Field), omitted{}, "must be of type "+jsonType(wrong.Type)))
	}
	return errs
}

// jsonType returns the name of the JSON type of a member.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int64:
		return "integer"
	case reflect.Slice:
		return "array"
	case reflect.String:
		return "string"
	}
	return "object"
}

// CheckSecure applies the rules of secure values alone.
func CheckSecure(obj, old *unstructured.Unstructured) (errs field.ErrorList) {
	validateSecure(rootNode(obj, &errs).object("secure"), SecureNames(old))
	return errs
}

// maxSecureValue is the longest value that secure.<field>.create takes, in
// characters. Source: InlineSecureValue of Grafana's common API.
const maxSecureValue = 24576

// validateSecure checks the inline secure values. A member carries exactly one of create, name and
// remove; only the name that is stored already may stand beside another, because patches leave it
// there.
func validateSecure(secure node, stored map[string]string) {
	for _, name := range secure.names() {
		member := secure.object(name)
		create, ref, remove := member.has("create"), member.text("name"), member.flag("remove")
		if ref == stored[name] && (create || remove) {
			ref = ""
		}
		if create && remove || ref != "" && (create || remove) {
			member.invalid("", "exactly one of create, name and remove may be given")
		}
		if create {
			if n := utf8.RuneCountInString(member.text("create")); n == 0 {
				member.required("create", "the value must not be empty; use remove: true to delete it")
			} else if n > maxSecureValue {
				// The value itself must not travel in the error.
				member.add(field.TooLong(member.path.Child("create"), "", maxSecureValue))
			}
		}
		for _, extra := range member.names() {
			if !slices.Contains([]string{"create", "name", "remove"}, extra) {
				member.add(field.Forbidden(member.path.Child(extra), "a secure value has only create, name and remove"))
			}
		}
	}
}

// SecureNames returns the name that each inline secure value of obj has on the server. It is empty
// for nil.
func SecureNames(obj *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	if obj == nil {
		return out
	}
	secure, _, _ := unstructured.NestedMap(obj.Object, "secure")
	for field, value := range secure {
		if member, ok := value.(map[string]any); ok {
			if name, _ := member["name"].(string); name != "" {
				out[field] = name
			}
		}
	}
	return out
}

// Warnings returns what is valid in obj but will not have the effect that it suggests.
func Warnings(obj *unstructured.Unstructured) []string {
	if !isRepository(obj) {
		return nil
	}
	var out []string
	if err := auth.CheckProvider(api.Annotation(obj, api.AnnoGitProvider)); err != nil {
		out = append(out, fmt.Sprintf("annotation %s: %v", api.AnnoGitProvider, err))
	}
	for _, s := range []struct{ name, otherwise string }{{api.AnnoGitLFS, "true"}, {api.AnnoGitSubmodules, "false"}} {
		if v := api.Annotation(obj, s.name); v != "" && v != "true" && v != "false" {
			out = append(out, fmt.Sprintf("annotation %s: %q is neither true nor false, so it is %s", s.name, v, s.otherwise))
		}
	}
	if _, err := signature.ParseMode(api.Annotation(obj, api.AnnoGitVerify)); err != nil {
		out = append(out, fmt.Sprintf("annotation %s: %v; nothing will be pulled", api.AnnoGitVerify, err))
	}
	workflows, _, _ := unstructured.NestedSlice(obj.Object, "spec", "workflows")
	if len(workflows) > 0 && api.Annotation(obj, api.AnnoGitRef) != "" {
		out = append(out, "annotation "+api.AnnoGitRef+": it names no branch, so jobs that write are refused while it is set")
	}
	if method, _, _ := unstructured.NestedString(obj.Object, "spec", "commit", "signingMethod"); method != "" {
		if _, err := signature.ParseMethod(method); err != nil {
			out = append(out, fmt.Sprintf("spec.commit.signingMethod: %v; jobs will commit nothing", err))
		}
	}
	return out
}

// checkPath returns why a directory or file of a repository may not be used.
// Slashes at either end mean nothing; the empty path is the root.
func checkPath(path string) error {
	var refused *repopath.PathError
	if errors.As(repopath.CheckPath(strings.TrimPrefix(path, "/")), &refused) {
		return errors.New(refused.Reason)
	}
	return nil
}

// checkBranch returns why a repository cannot be pulled from a branch.
func checkBranch(branch string) error {
	if branch == "HEAD" {
		return errors.New("leave it out to follow the default branch")
	}
	return auth.CheckRefName(branch)
}

// checkGitURL returns why a URL cannot be the remote of a repository. ssh allows ssh://, the scp
// form user@host:path and file:// beside http and https. The error never repeats the URL, which may
// carry a password.
func checkGitURL(raw string, ssh bool) error {
	a, err := auth.ParseAddress(raw)
	switch {
	case err != nil:
		return err
	case a.Scheme == "https", a.Scheme == "http":
		// A user name in an http URL is as often as not a token.
		if a.User != "" || a.Password {
			return errors.New("must not contain a user name or a password; put the user in tokenUser and the secret in secure.token")
		}
	case !ssh:
		return errors.New("must begin with https:// or http://; ssh and file are for repositories of type git")
	case a.Scheme == auth.DirScheme:
		return errors.New("a directory of plain files is a repository of type local")
	case a.Local():
		// Whether the agent may read the directory is its own decision.
		if a.String() != raw {
			return errors.New("use " + a.String() + " for a local repository")
		}
	case a.Upstream() && (a.User != "" || a.Password):
		return errors.New("must not contain a user name or a password; put the token of the other limpet in secure.token")
	case a.Password:
		return errors.New("must not contain a password; put the key in the credentials of the repository")
	case a.User == "" && !strings.Contains(raw, "://"):
		return errors.New("without a scheme it must have the form user@host:path")
	}
	return nil
}

// checkWebURL returns why text cannot be the address of a server.
func checkWebURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with https:// or http://")
	case u.User != nil:
		return errors.New("must not contain a user name or a password")
	case u.Hostname() == "":
		return errors.New("must name a host")
	}
	return nil
}

// targetInstance is the target that only one repository of a namespace has.
const targetInstance = "instance"

// CheckSiblings checks obj, which replaces old (nil for a new object), against the other
// Repositories of its namespace, of which there may be most; 0 = no limit. read returns
// them, obj itself may be among them; it is called only if a rule depends on them.
func CheckSiblings(
	obj, old *unstructured.Unstructured, most int64, read func() ([]*unstructured.Unstructured, error),
) (errs field.ErrorList, err error) {
	takes := syncTarget(obj) == targetInstance && syncTarget(old) != targetInstance
	counts := most > 0 && old == nil
	pulled := treeOf(obj)
	// What is stored hinders no other change.
	moves := pulled.url != "" && treeOf(old).asWithBranch(pulled) != pulled
	if !isRepository(obj) || obj.GetDeletionTimestamp() != nil || !takes && !counts && !moves {
		return nil, nil
	}
	all, err := read()
	if err != nil {
		return nil, err
	}
	have := int64(0)
	for _, other := range all {
		if other.GetName() == obj.GetName() || other.GetDeletionTimestamp() != nil {
			continue
		}
		have++
		if takes && syncTarget(other) == targetInstance {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "sync", "target"),
				fmt.Sprintf("only one repository of a namespace has the target %s, and that is %q", targetInstance, other.GetName())))
			takes = false
		}
		// A Repository that a file renames is created before the one with the old name is pruned.
		renamed := declared(obj) && declared(other)
		if moves && !renamed {
			if text := pulled.conflict(treeOf(other)); text != "" {
				at := field.NewPath("spec", api.Spec(obj, "type"), "path")
				errs = append(errs, field.Invalid(at, pulled.dir, text+": "+other.GetName()))
				moves = false
			}
		}
	}
	if counts && have >= most { // source: Grafana
		errs = append(errs, field.Forbidden(field.NewPath("spec"), fmt.Sprintf("Maximum number of %d repositories reached", most)))
	}
	return errs, nil
}

// declared reports whether an object comes from a file of --manifests.
func declared(obj *unstructured.Unstructured) bool {
	return api.Annotation(obj, api.AnnoManifest) != ""
}

// tree is what a Repository pulls into the API. The zero value pulls nothing there.
type tree struct{ url, branch, ref, dir string }

// treeOf returns the tree of a Repository; nil has none. Those of type local have none, as for
// Grafana, and a directory may receive what the API receives.
func treeOf(obj *unstructured.Unstructured) tree {
	if !isRepository(obj) || api.Annotation(obj, api.AnnoSinkDir) != "" {
		return tree{}
	}
	repo, err := api.RepositoryView(obj)
	block := repo.Spec.Block()
	if err != nil || !repo.Spec.Sync.Enabled || block == nil || repo.Spec.Type == "local" {
		return tree{}
	}
	url := strings.TrimSuffix(strings.TrimRight(block.URL, "/"), ".git")
	return tree{url, block.Branch, api.Annotation(obj, api.AnnoGitRef), repo.Spec.Dir()}
}

// asWithBranch returns the tree with the branch of another one if it had none: the controller names
// the default branch.
func (t tree) asWithBranch(other tree) tree {
	t.branch = cmp.Or(t.branch, other.branch)
	return t
}

// conflict returns why two trees must not both be pulled: each would have the files of the other.
// Source of the words: Grafana.
func (t tree) conflict(other tree) string {
	a, b := t.dir+"/", other.dir+"/"
	switch {
	case t.url != other.url || t.branch != other.branch || t.ref != other.ref:
	case a == b:
		return "duplicate repository path"
	case t.dir == "" || other.dir == "" || strings.HasPrefix(a, b) || strings.HasPrefix(b, a):
		return "repository path conflicts with existing repository"
	}
	return ""
}

func isRepository(obj *unstructured.Unstructured) bool {
	return obj != nil && obj.GetKind() == "Repository" && obj.GroupVersionKind().Group == api.ProvisioningGroup
}

func syncTarget(obj *unstructured.Unstructured) string {
	if obj == nil {
		return ""
	}
	target, _, _ := unstructured.NestedString(obj.Object, "spec", "sync", "target")
	return target
}
