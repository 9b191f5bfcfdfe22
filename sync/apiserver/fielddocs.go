package apiserver

import (
	"strings"

	"limpet/sync/api"
)

// What "kubectl explain" tells of our own kinds: path, type and meaning, one
// field a line. Types are those of OpenAPI; []string is a list of texts. Fields
// that are not here are kept all the same.
var fieldDocs = map[string]string{
	"Repository": `
 | | A Git repository whose files become dashboards and folders.
spec|object|What to sync and how.
spec.title|string|Display name; the name of the object if it is left out.
spec.description|string|What the repository is for.
spec.type|string|git, github, githubEnterprise, gitlab, bitbucket or local. It names the block below and cannot be changed.
spec.workflows|[]string|How files may be edited: write, branch. None = read-only.
spec.sync|object|Whether, where to and how often to pull.
spec.sync.enabled|boolean|Pull at all.
spec.sync.target|string|instance (one repository owns everything), folder or folderless.
spec.sync.intervalSeconds|integer|Seconds between two pulls.
spec.git|object|Any Git server over https or ssh.
spec.git.url|string|Address of the repository, without credentials.
spec.git.branch|string|Branch to follow.
spec.git.path|string|Directory below the root; slashes at its ends mean nothing.
spec.git.tokenUser|string|User name that goes with the token.
spec.github|object|A repository on github.com: url, branch, path.
spec.github.url|string|https://github.com/OWNER/REPOSITORY
spec.github.branch|string|Branch to follow.
spec.github.path|string|Directory below the root.
spec.gitlab|object|A repository on a GitLab server: url, branch, path.
spec.bitbucket|object|A repository on a Bitbucket server: url, branch, path, tokenUser.
spec.githubEnterprise|object|A repository on GitHub Enterprise: serverUrl, url, branch, path.
spec.connection|object|Credentials from a Connection.
spec.connection.name|string|Name of the Connection in the same namespace.
secure|object|Write-only values: create to set one, name in answers, remove to drop it.
secure.token|object|Token for the Git server.
secure.webhookSecret|object|Secret of the webhook.
secure.commitSigningKey|object|Private key that signs commits, of OpenPGP or ssh.
secure.commitSigningPassphrase|object|Passphrase of that key.
status|object|What the server found out.
status.observedGeneration|integer|Generation that was last looked at.
status.health|object|Result of the last health check.
status.sync|object|The last or current pull; lastRef is its commit.
status.sync.state|string|pending, working, success, warning or error.
status.sync.lastRef|string|Commit of the last pull that succeeded.`,
	"Job": `
 | | One piece of work on a repository. It is deleted when it is done; a HistoricJob stays.
spec|object|What to do.
spec.action|string|pull, push, pr, migrate, delete, move, fixFolderMetadata, releaseResources, deleteResources or test.
spec.repository|string|Name of the Repository in the same namespace.
spec.message|string|Commit message.
spec.pull|object|Options of a pull.
spec.pull.incremental|boolean|Only what changed since the last pull.
status|object|Progress and result.
status.state|string|pending, working, success, warning or error; empty before anybody took the job.
status.message|string|What is being done, or how it ended.
status.started|integer|Milliseconds since the epoch.
status.finished|integer|Milliseconds since the epoch.
status.progress|number|0 to 100 while the job runs.
status.errors|[]string|What went wrong.
status.warnings|[]string|What was left out.`,
	"Connection": `
 | | Credentials that several repositories share.
spec|object|How to reach the provider.
spec.title|string|Display name.
spec.type|string|github, githubEnterprise, gitlab or bitbucket.
spec.url|string|Address of the provider.
spec.github|object|A GitHub App.
spec.github.appID|string|Id of the app.
spec.github.installationID|string|Id of its installation.
secure|object|Write-only values: create to set one, name in answers, remove to drop it.
secure.privateKey|object|Private key of the app: PEM, or base64 of it.
secure.token|object|A token.
secure.clientSecret|object|Secret of an OAuth client.
status|object|What the server found out.`,
	"GitRepository": `
 | | A Git source as Flux knows it.
spec|object|What to fetch and how often.
spec.url|string|Address of the repository.
spec.interval|string|Time between two fetches, such as 5m.
spec.timeout|string|Time that one fetch may take.
spec.ref|object|branch, tag, semver, name or commit.
spec.secretRef|object|name of the Secret with the credentials.
spec.ignore|string|Patterns of files to leave out, as in .gitignore.
spec.suspend|boolean|Do not fetch.
status|object|The last artifact and the conditions.`,
}

// docOf finds the type and meaning of a field; path "" is the kind itself.
func docOf(kind, path string) (typeName, meaning string) {
	if kind == "HistoricJob" {
		kind = "Job"
	}
	for line := range strings.Lines(fieldDocs[kind]) {
		parts := strings.SplitN(strings.TrimRight(line, "\n"), "|", 3)
		if len(parts) == 3 && strings.TrimSpace(parts[0]) == path {
			return parts[1], parts[2]
		}
	}
	return "", ""
}

// describe is the meaning of a field.
func describe(k api.Kind, path string) string {
	_, meaning := docOf(k.Kind, path)
	return strings.TrimSpace(meaning)
}

// describedSchema is the schema of an object with the fields that are known.
func describedSchema(k api.Kind, path string) jsonObject {
	schema := jsonObject{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	if meaning := describe(k, path); meaning != "" {
		schema["description"] = meaning
	}
	properties := jsonObject{}
	kind := k.Kind
	if kind == "HistoricJob" {
		kind = "Job"
	}
	for line := range strings.Lines(fieldDocs[kind]) {
		name, _, _ := strings.Cut(line, "|")
		child, ok := strings.CutPrefix(name, path+".")
		if !ok || strings.Contains(child, ".") {
			continue
		}
		switch typeName, meaning := docOf(kind, name); typeName {
		case "object":
			properties[child] = describedSchema(k, name)
		case "[]string":
			properties[child] = jsonObject{"type": "array", "items": jsonObject{"type": "string"}, "description": meaning}
		default:
			properties[child] = jsonObject{"type": typeName, "description": meaning}
		}
	}
	if len(properties) > 0 {
		schema["properties"] = properties
	}
	return schema
}
