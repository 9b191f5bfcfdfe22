// Package api holds the wire types of the APIs that limpet speaks to: objects as
// typed views, labels and annotations, conditions, and CRDs. It makes no calls.
package api

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TemporarySink matches a path with the name of a directory that limpet makes beside a sink, and
// removes.
var TemporarySink = regexp.MustCompile(`(^|/)\.[^/]+\.limpet-(new|old)-`)

// Labels and annotations of the wire. Source: Grafana's job store and its resource metadata; the
// limpet/ ones are ours.
const (
	LabelClaim         = "provisioning.grafana.app/claim"
	LabelClaimOwner    = "provisioning.grafana.app/claim-owner"
	LabelRepository    = "provisioning.grafana.app/repository"
	LabelOriginalUID   = "provisioning.grafana.app/original-uid"
	LabelPendingDelete = "cloud.grafana.com/pending-delete"

	AnnoManagedBy          = "grafana.app/managedBy"
	AnnoManagerID          = "grafana.app/managerId"
	AnnoManagerAllowsEdits = "grafana.app/managerAllowsEdits"
	AnnoSourcePath         = "grafana.app/sourcePath"
	AnnoSourceChecksum     = "grafana.app/sourceChecksum"
	AnnoFolder             = "grafana.app/folder"
	AnnoGrantPermissions   = "grafana.app/grant-permissions"
	LabelDeprecatedID      = "grafana.app/deprecatedInternalID"

	// AnnoSinkDir names a directory under a --sink-prefix that receives the tree of a Repository
	// instead of the API, or that of the artifact of a GitRepository.
	AnnoSinkDir = "limpet/sink-dir"
	// AnnoSinkExec is a JSON list with a program of a --sink-exec and its arguments, which runs after
	// a switch of that directory.
	AnnoSinkExec = "limpet/sink-exec"
	// AnnoKeepSymlinks on a GitRepository, with the value true, keeps the relative symbolic links in
	// its artifact that stay inside of the tree.
	AnnoKeepSymlinks = "limpet/keep-symlinks"
	// AnnoAcceptDigest on a HelmChart, with the value true, accepts a chart whose digest is not that
	// of the index of its repository.
	AnnoAcceptDigest = "limpet/accept-digest"
	// AnnoExternalArtifact on a Repository, or on a source whose URL Flux does not know, with the value
	// true, publishes its commit or its artifact as an ExternalArtifact of the same name.
	AnnoExternalArtifact = "limpet/external-artifact"
	// AnnoManifest names the file of --manifests that an object comes from.
	AnnoManifest = "limpet/manifest"
	// AnnoManifestOwner names the host and the directory of that file, on the API of another server.
	AnnoManifestOwner = "limpet/manifest-owner"
	// AnnoSinkStrict on a Repository, with the value true, keeps from that directory what is no
	// dashboard or folder.
	AnnoSinkStrict = "limpet/sink-strict"
	// AnnoDrift on a Repository says what is done when the server has something else than Git: report,
	// correct or off.
	AnnoDrift = "limpet/drift"
	// AnnoDriftIgnore on a Repository lists JSON pointers of members in which an object may differ
	// from its file.
	AnnoDriftIgnore = "limpet/drift-ignore"
	// AnnoGitProvider on a Repository names the identity provider that issues its Git
	// credentials: aws, azure, gcp, github, gitlab; generic = none.
	AnnoGitProvider = "limpet/git-provider"
	// AnnoGitRef on a Repository names what is pulled in place of the branch of its
	// spec: tag:NAME, semver:RANGE, ref:FULLNAME or commit:SHA; see package gitref.
	AnnoGitRef = "limpet/git-ref"
	// AnnoGitRefUnpinned on a Repository is AnnoGitRef before 'limpet repo rollback' pinned it to a
	// commit; empty = there was none.
	AnnoGitRefUnpinned = "limpet/git-ref-unpinned"
	// RefCommit begins the AnnoGitRef that pins a Repository to a commit.
	RefCommit = "commit:"
	// AnnoGitProxySecret on a Repository names a Secret in its namespace with the
	// proxy to its Git host: the keys address, username and password.
	AnnoGitProxySecret = "limpet/git-proxy-secret"
	// AnnoGitMirrors on a Repository lists other URLs of the same repository, separated by
	// blanks or commas, which are used while that of its spec is unreachable.
	AnnoGitMirrors = "limpet/git-mirrors"
	// AnnoGitLFS on a Repository, with the value false, leaves files in Git LFS out.
	AnnoGitLFS = "limpet/git-lfs"
	// AnnoGitVerify on a Repository names what has to be signed before it is pulled: HEAD, Tag or
	// TagAndHEAD.
	AnnoGitVerify = "limpet/git-verify"
	// AnnoGitVerifyPrincipals on a Repository lists, separated by commas, the principals of
	// which one has to own the key; "committer" is the one that the commit or tag names.
	AnnoGitVerifyPrincipals = "limpet/git-verify-principals"
	// AnnoGitSubmodules on a Repository, with the value true, pulls submodules as well.
	AnnoGitSubmodules = "limpet/git-submodules"
	// AnnoCommitStatus on a Repository, with the value true, has the commits of its syncs get a status
	// at the Git host.
	AnnoCommitStatus = "limpet/commit-status"
	// AnnoPRComment on a Repository is update, for one comment on each pull request, or new, for one
	// on each push to it.
	AnnoPRComment = "limpet/pr-comment"
	// AnnoAllowMassDelete on a Job lets a pull delete more than the guard allows.
	AnnoAllowMassDelete = "limpet/allow-mass-delete"
	// AnnoAttempt on a Job counts the claims that ended without a result.
	AnnoAttempt = "limpet/attempt"
	// AnnoNotBefore on a Job is the server time in milliseconds before which it
	// is not claimed again: the backoff between two attempts.
	AnnoNotBefore = "limpet/not-before"
	// AnnoCancel on a Job asks its owner to stop; the value is the reason.
	AnnoCancel = "limpet/cancel"
	// AnnoPriority on a Job, or on a Repository for all its jobs, is 0 to 9; 9 is
	// most urgent, 5 is that of a job without it.
	AnnoPriority = "limpet/priority"
	// AnnoAttempts on a Job lists, as JSON, the attempts that have ended without a
	// result, so that the record of the job can include all of them.
	AnnoAttempts = "limpet/attempts"
	// AnnoAgent on a Job names the agent that claimed it last.
	AnnoAgent = "limpet/agent"
	// AnnoRetryOf on a Job is the UID of the finished job that it repeats.
	AnnoRetryOf = "limpet/retry-of"
)

// Finalizers of a Repository, in the order in which they are worked off. Source: Grafana's
// repository controller.
const (
	FinalizerRemoveJobs = "remove-pending-jobs"
	FinalizerCleanup    = "cleanup"
	FinalizerRelease    = "release-orphan-resources"
	FinalizerRemove     = "remove-orphan-resources"
)

// ParseExec reads the annotation with the arguments of a program. The first is an absolute path.
func ParseExec(annotation string) (argv []string, err error) {
	if err := json.Unmarshal([]byte(annotation), &argv); err != nil {
		return nil, errors.New(`it is no JSON list of texts such as ["/usr/bin/systemctl","reload","nginx"]`)
	}
	if len(argv) == 0 || !filepath.IsAbs(argv[0]) || filepath.Clean(argv[0]) != argv[0] {
		return nil, errors.New("the first text is no absolute path of a program, or has . or .. in it")
	}
	if slices.ContainsFunc(argv, func(arg string) bool { return strings.ContainsRune(arg, 0) }) {
		return nil, errors.New("a text has a null byte")
	}
	return argv, nil
}

// Label is one label of an object, "" when it has none. GetLabels would copy all of them.
func Label(u *unstructured.Unstructured, name string) string {
	return textAt(u, "metadata", "labels", name)
}

// Annotation is one annotation of an object, "" when it has none. GetAnnotations would copy all of
// them.
func Annotation(u *unstructured.Unstructured, name string) string {
	return textAt(u, "metadata", "annotations", name)
}

// Meta is a text member of the metadata of an object, as "uid", "" when it has none.
func Meta(u *unstructured.Unstructured, member string) string { return textAt(u, "metadata", member) }

// Spec is a text member of the spec of an object, "" when it has none.
func Spec(u *unstructured.Unstructured, member string) string { return textAt(u, "spec", member) }

func textAt(u *unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(u.Object, path...)
	return text
}

// SetLabel sets a label of an object, or with "" removes it.
func SetLabel(u *unstructured.Unstructured, name, value string) { setTag(u, "labels", name, value) }

// SetAnnotation sets an annotation of an object, or with "" removes it.
func SetAnnotation(u *unstructured.Unstructured, name, value string) {
	setTag(u, "annotations", name, value)
}

// setTag leaves no empty member behind.
func setTag(u *unstructured.Unstructured, member, name, value string) {
	meta, _ := u.Object["metadata"].(map[string]any)
	tags, _ := meta[member].(map[string]any)
	switch _, has := tags[name]; {
	case value == "" && has && len(tags) == 1:
		delete(meta, member)
	case value == "":
		delete(tags, name)
	default:
		if u.Object == nil {
			u.Object = map[string]any{}
		}
		_ = unstructured.SetNestedField(u.Object, value, "metadata", member, name) // fails only where metadata is no object
	}
}
