package admission

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git/gitref"
)

// Values of a Repository. Source: Grafana's Repository type and validator.
var (
	repositoryTypes = []string{"local", "github", "githubEnterprise", "git", "bitbucket", "gitlab"}
	syncTargets     = []string{"instance", "folder", "folderless"}
	workflows       = []string{"write", "branch"}
	reservedNames   = []string{
		"classic", "sql", "SQL", "plugins", "legacy", "new", "job", "github", "s3", "gcs", "file", "create", "update", "delete",
	}
	// repositoryFinalizers are the ones that Grafana's repository controller
	// works off, and the Kubernetes ones that the API itself understands.
	repositoryFinalizers = []string{
		api.FinalizerRemoveJobs, api.FinalizerCleanup, api.FinalizerRelease, api.FinalizerRemove, "foregroundDeletion", "orphan",
	}
)

func validateRepository(obj, old *unstructured.Unstructured, root node) {
	validateRepositoryMetadata(obj, old, root)
	spec := root.object("spec")
	if !root.has("spec") {
		spec.required("", "a repository needs a spec with its type")
		return
	}
	kind, known := spec.enum("type", repositoryTypes)
	if known {
		validateBlock(spec, kind)
		for _, other := range soleBlocks {
			if other != kind && spec.has(other) {
				spec.add(field.Invalid(spec.path.Child(other), omitted{}, "belongs to the type "+other+", and this is "+kind))
			}
		}
	}
	validateSync(spec.object("sync"))
	for i, workflow := range spec.texts("workflows") {
		at := spec.path.Child("workflows").Index(i)
		switch {
		case !slices.Contains(workflows, workflow):
			spec.add(field.NotSupported(at, workflow, workflows))
		case workflow == "branch" && kind == "local":
			spec.add(field.Invalid(at, workflow, "a local directory has no branches; only write is possible"))
		}
	}
	validateRevision(obj, spec, kind)
	if known {
		if text := validateRemote(obj, spec, kind, api.AnnoGitMirrors); text != "" {
			if _, err := auth.Mirrors(text, spec.object(kind).text("url")); err != nil {
				spec.add(field.Invalid(annotationPath(api.AnnoGitMirrors), omitted{}, err.Error()))
			}
		}
	}
	if spec.has("connection") {
		connection := spec.object("connection")
		validateDNSName(connection, "name", "the name of a Connection in the same namespace")
		if old == nil && root.object("secure").object("token").has("create") {
			spec.invalid("connection", "the token comes either from a connection or from secure.token; leave one of them out")
		}
	}
	if spec.has("pullRequest") && (kind == "git" || kind == "local") {
		spec.add(field.Forbidden(spec.path.Child("pullRequest"), "a repository of type "+kind+" has no pull requests"))
	}
	validateCommit(spec.object("commit"))
	spec.object("webhook").checkHidden("baseUrl", checkWebURL)
	if old != nil {
		validateRepositoryChange(spec, root.object("secure"), old)
	}
}

func validateRepositoryMetadata(obj, old *unstructured.Unstructured, root node) {
	meta := field.NewPath("metadata")
	name := obj.GetName()
	if old == nil && slices.Contains(reservedNames, name) {
		root.add(field.Invalid(meta.Child("name"), name, "the name is reserved"))
	}
	if old == nil && obj.GetLabels()[api.LabelPendingDelete] != "" {
		root.add(field.Forbidden(meta.Child("labels").Key(api.LabelPendingDelete), "a new repository cannot be pending deletion"))
	}
	// The name is the value of the repository label of every job.
	if len(name) > validation.LabelValueMaxLength {
		root.add(field.TooLong(meta.Child("name"), name, validation.LabelValueMaxLength))
	}
	finalizers := obj.GetFinalizers()
	if old != nil && len(finalizers) == 0 && len(old.GetFinalizers()) > 0 {
		root.add(field.Invalid(meta.Child("finalizers"), finalizers, "cannot have no finalizers set on resources not marked for deletion; "+
			"keep them, or put "+api.FinalizerRelease+" in place of "+api.FinalizerRemove))
	}
	for i, finalizer := range finalizers {
		at := meta.Child("finalizers").Index(i)
		switch {
		case strings.Contains(finalizer, "/"): // owned by some other controller
		case !slices.Contains(repositoryFinalizers, finalizer):
			root.add(field.NotSupported(at, finalizer, repositoryFinalizers))
		case finalizer == api.FinalizerRelease && slices.Contains(finalizers, api.FinalizerRemove):
			root.add(field.Invalid(at, finalizer,
				"resources are either released or removed: leave out "+api.FinalizerRemove+" or "+api.FinalizerRelease))
		}
	}
	for name, values := range reportAnnotations {
		if value, set := obj.GetAnnotations()[name]; set && !slices.Contains(values, value) {
			root.add(field.NotSupported(annotationPath(name), value, values))
		}
	}
	if ignore := obj.GetAnnotations()[api.AnnoDriftIgnore]; ignore != "" {
		if _, err := api.ParsePointers(ignore); err != nil {
			root.add(field.Invalid(annotationPath(api.AnnoDriftIgnore), ignore, err.Error()))
		}
	}
	validateSink(obj, root)
}

// validateSink checks the annotations of a directory that receives files.
func validateSink(obj *unstructured.Unstructured, root node) {
	if dir, set := obj.GetAnnotations()[api.AnnoSinkDir]; set {
		at := annotationPath(api.AnnoSinkDir)
		if api.TemporarySink.MatchString(dir) {
			root.add(field.Invalid(at, dir, "is the name of a temporary directory of limpet, which it removes"))
		}
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.ContainsRune(dir, 0) {
			root.add(field.Invalid(at, dir, "must be an absolute directory without . and .. and without a slash at its end"))
		}
	}
	if argv, set := obj.GetAnnotations()[api.AnnoSinkExec]; set {
		if _, err := api.ParseExec(argv); err != nil {
			root.add(field.Invalid(annotationPath(api.AnnoSinkExec), argv, err.Error()))
		}
	}
}

// reportAnnotations are those about results at the Git host, with their values.
var reportAnnotations = map[string][]string{api.AnnoCommitStatus: {"true", "false"}, api.AnnoPRComment: {"update", "new"},
	api.AnnoDrift: api.DriftModes}

// validateBlock checks the block that the type names.
func validateBlock(spec node, kind string) {
	block := spec.object(kind)
	if !spec.has(kind) {
		spec.required(kind, "the type is "+kind+", so its settings belong here")
		return
	}
	path := block.text("path")
	if kind == "local" {
		if path == "" {
			block.required("path", "the directory to read")
		} else if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") || strings.ContainsRune(path, 0) {
			block.invalid("path", `must be an absolute directory without the segment ".."`)
		}
		return
	}
	block.check("path", checkPath)
	if block.text("url") == "" {
		block.required("url", "where the repository is cloned from, such as https://host/owner/name.git")
	}
	block.checkHidden("url", func(url string) error { return checkGitURL(url, kind == "git") })
	block.check("branch", checkBranch)
	block.checkHidden("serverUrl", checkWebURL)
	if kind == "githubEnterprise" && block.text("serverUrl") == "" {
		block.required("serverUrl", "the address of the GitHub Enterprise server")
	}
	block.checkHidden("tokenUser", func(user string) error {
		if strings.ContainsAny(user, ":\r\n\x00") { // what stands behind a colon is a password
			return errors.New("must not contain a colon or a line break; the secret belongs in secure.token")
		}
		return nil
	})
	if limits := block.object("requestLimits"); kind == "git" {
		for _, name := range []string{"maxConcurrent", "requestsPerSecond", "burst"} {
			if limits.integer(name) < 0 {
				limits.invalid(name, "must not be negative; 0 is no limit")
			}
		}
	} else if block.has("requestLimits") {
		block.add(field.Forbidden(block.child("requestLimits"), "only a repository of type git has request limits"))
	}
}

// soleBlocks are those that a Repository of another type must not have. Source:
// Grafana's validator, which does not look at the others.
var soleBlocks = []string{"local", "github", "git"}

func validateSync(sync node) {
	enabled := sync.flag("enabled")
	if target := sync.text("target"); target == "" {
		if enabled {
			sync.required("target", "needed when sync is enabled; one of "+strings.Join(syncTargets, ", "))
		}
	} else if !slices.Contains(syncTargets, target) {
		sync.add(field.NotSupported(sync.path.Child("target"), target, syncTargets))
	}
	if sync.integer("intervalSeconds") < 0 {
		sync.invalid("intervalSeconds", "must not be negative")
	}
}

// signingMethods are those of Grafana. Of them limpet has gpg and ssh.
var signingMethods = []string{"gpg", "ssh", "smime"}

// validateCommit checks author, committer and signing of commits.
func validateCommit(commit node) {
	for _, name := range []string{"authorName", "authorEmail", "signerName", "signerEmail"} {
		if strings.ContainsAny(commit.text(name), "<>\r\n\x00") {
			commit.invalid(name, "must not contain < or >, or a line break")
		}
	}
	if method := commit.text("signingMethod"); method != "" && !slices.Contains(signingMethods, method) {
		commit.add(field.NotSupported(commit.path.Child("signingMethod"), method, signingMethods))
	}
}

func validateRepositoryChange(spec, secure node, old *unstructured.Unstructured) {
	before, err := api.RepositoryView(old)
	if err != nil {
		return // a stored object that cannot be read must stay repairable
	}
	kind := spec.text("type")
	if before.Spec.Type != "" && kind != before.Spec.Type {
		spec.add(field.Invalid(spec.path.Child("type"), kind,
			fmt.Sprintf("is %s and cannot be changed; make a new repository", before.Spec.Type)))
		return
	}
	sync := spec.object("sync")
	if target := sync.text("target"); target != before.Spec.Sync.Target && len(before.Status.Stats) > 0 {
		sync.add(field.Invalid(sync.path.Child("target"), target,
			fmt.Sprintf("is %s and cannot be changed once resources were synced; make a new repository", before.Spec.Sync.Target)))
	}
	// A token that was made for one server must not be sent to another.
	stored := before.Secure["token"].Name
	block := before.Spec.Block()
	if stored == "" || block == nil || block.URL == spec.object(kind).text("url") {
		return
	}
	token := secure.object("token")
	if name := token.text("name"); !token.has("create") && !token.flag("remove") && (name == "" || name == stored) {
		token.required("create", "the URL changed, so the token must be given anew (or remove: true)")
	}
}

// validateDNSName requires a member to be the name of an object.
func validateDNSName(n node, name, what string) {
	if n.text(name) == "" {
		n.required(name, what)
	}
	n.check(name, func(value string) error {
		if len(validation.IsDNS1123Subdomain(value)) > 0 {
			return errors.New(`must be lower-case letters, digits, "-" and ".", with a letter or digit at both ends`)
		}
		return nil
	})
}

// validateRevision checks what a Repository pulls in place of its branch.
func validateRevision(obj *unstructured.Unstructured, spec node, kind string) {
	text := validateRemote(obj, spec, kind, api.AnnoGitRef)
	if text == "" {
		return
	}
	if _, err := gitref.Parse(text); err != nil {
		spec.add(field.Invalid(annotationPath(api.AnnoGitRef), text, err.Error()))
	}
}

// validateRemote returns an annotation that a local Repository must not have.
func validateRemote(obj *unstructured.Unstructured, spec node, kind, name string) string {
	text := api.Annotation(obj, name)
	if text != "" && kind == "local" {
		spec.add(field.Forbidden(annotationPath(name), "a local directory has no revisions and no mirrors; leave the annotation out"))
		return ""
	}
	return text
}

func annotationPath(name string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(name)
}

// connectionTypes are those of Grafana's Connection type.
var connectionTypes = []string{"github", "githubEnterprise", "githubOAuth", "githubEnterpriseOAuth", "gitlab", "bitbucket"}

func validateConnection(root node) {
	spec := root.object("spec")
	if !root.has("spec") {
		spec.required("", "a connection needs a spec with its type")
		return
	}
	spec.checkHidden("url", checkWebURL)
	kind, known := spec.enum("type", connectionTypes)
	if !known {
		return
	}
	switch kind {
	case "github", "githubEnterprise":
		validateApp(spec, kind)
	case "githubOAuth", "githubEnterpriseOAuth":
		oauth := requiredBlock(spec, "oauth", kind)
		if spec.has("oauth") && oauth.text("clientID") == "" {
			oauth.required("clientID", "the client id of the OAuth application")
		}
	}
	if kind == "githubEnterprise" || kind == "githubEnterpriseOAuth" {
		block := spec.object(kind)
		if kind == "githubEnterpriseOAuth" {
			block = requiredBlock(spec, kind, kind)
		}
		if block.checkHidden("serverUrl", checkWebURL); spec.has(kind) && block.text("serverUrl") == "" {
			block.required("serverUrl", "the address of the GitHub Enterprise server")
		}
	}
	root.object("secure").object("privateKey").checkHidden("create", checkPrivateKey)
}

func validateApp(spec node, kind string) {
	app := requiredBlock(spec, kind, kind)
	if !spec.has(kind) {
		return
	}
	for _, name := range []string{"appID", "installationID"} {
		if app.text(name) == "" {
			app.required(name, "the id of the GitHub App's "+strings.TrimSuffix(name, "ID")+", as text")
		}
		app.check(name, func(value string) error {
			if strings.Trim(value, "0123456789") != "" {
				return errors.New("must be a number, written as text")
			}
			return nil
		})
	}
}

func requiredBlock(spec node, name, kind string) node {
	if !spec.has(name) {
		spec.required(name, "the type is "+kind+", so its settings belong here")
	}
	return spec.object(name)
}

// checkPrivateKey returns why a text is no private key, given as PEM or as base64
// of it, which is what Grafana's own tests send. The error does not repeat the key.
func checkPrivateKey(value string) error {
	text := []byte(value)
	if !strings.Contains(value, "-----BEGIN ") {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), ""))
		if err != nil {
			return errors.New("must be a PEM private key or base64 of one")
		}
		text = decoded
	}
	block, _ := pem.Decode(text)
	if block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return errors.New("must be a PEM private key or base64 of one")
	}
	return nil
}

// validateConnectionChange checks an update: a secret that was given for one server must not be
// sent to another.
func validateConnectionChange(obj, old *unstructured.Unstructured, secure node) {
	before, err := api.ConnectionView(old)
	if err != nil {
		return // a stored object that cannot be read must stay repairable
	}
	after, err := api.ConnectionView(obj)
	if err != nil || secretRecipient(after.Spec) == secretRecipient(before.Spec) {
		return // other rules report what cannot be read
	}
	stored := SecureNames(old)
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		member := secure.object(name)
		if ref := member.text("name"); !member.has("create") && !member.flag("remove") && (ref == "" || ref == stored[name]) {
			member.required("create", "the server changed, so the secret must be given anew (or remove: true)")
		}
	}
}

// secretRecipient identifies the API that receives the secrets of a Connection. The
// type counts, because it chooses the API at the address.
func secretRecipient(spec api.ConnectionSpec) string {
	server := spec.Server()
	if a, err := auth.ParseServer(server); err == nil {
		server = a.Scheme + "://" + a.HostPort()
	}
	return spec.Type + " " + server
}
