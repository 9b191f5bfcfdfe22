package admission

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// pemKey is a private key in form only; nothing signs with it.
const pemKey = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n"

// object reads a YAML object of the provisioning group; apiVersion and a name are filled in.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1"}}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	// As the server reads it: whole numbers are int64.
	if err := utiljson.Unmarshal(data, &obj.Object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if obj.GetName() == "" {
		obj.SetName("dashboards")
	}
	return obj
}

const (
	goodRepository = `
kind: Repository
metadata: {name: dashboards, namespace: default}
spec:
  title: Dashboards
  type: git
  workflows: [write, branch]
  git: {url: https://git.example.com/ops/dashboards.git, branch: main, tokenUser: grafana, path: grafana/}
  sync: {enabled: true, target: folder, intervalSeconds: 60}
secure: {token: {create: s3cr3t}}
`
	goodConnection = `
kind: Connection
metadata: {name: github-app, namespace: default}
spec: {title: GitHub App, type: github, url: https://github.com, github: {appID: "123456", installationID: "454545"}}
`
)

func TestValidate(t *testing.T) {
	t.Parallel()
	long, endless := strings.Repeat("x", 64), strings.Repeat("ä", 100_000)
	for _, c := range []struct {
		name string
		text string
		want []string // paths of the faults; none = valid
	}{
		{"repository", goodRepository, nil},
		{"repository by ssh", `{kind: Repository, spec: {type: git, git: {url: "git@host:a/b.git"}}}`, nil},
		{"repository with a connection", `{kind: Repository, spec: {type: github, github: {url: "https://github.com/a/b"}, connection: {name: github-app}}}`, nil},
		{"local repository", `{kind: Repository, spec: {type: local, local: {path: /srv/dashboards}, workflows: [write]}}`, nil},
		{"who commits", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, commit: {authorName: Ann, signerEmail: a@b.c, signingMethod: ssh, signerIsAuthor: true}}}`, nil},
		{"who commits, of no form", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, commit: {authorName: "Ann <a@b.c>", signerEmail: "a\nb", signingMethod: pgp, signerIsAuthor: "x"}}}`,
			[]string{"spec.commit.authorName", "spec.commit.signerEmail", "spec.commit.signingMethod"}},
		{"request limits", `{kind: Repository, spec: {type: git, git: {url: "https://h/a", requestLimits: {maxConcurrent: 1, requestsPerSecond: 0, burst: 2}}}}`, nil},
		{"wrong request limits", `{kind: Repository, spec: {type: git, git: {url: "https://h/a", requestLimits: {maxConcurrent: -1, requestsPerSecond: x}}}}`,
			[]string{"spec.git.requestLimits.maxConcurrent", "spec.git.requestLimits.requestsPerSecond"}},
		{"request limits elsewhere", `{kind: Repository, spec: {type: github, github: {url: "https://github.com/a/b", requestLimits: {burst: 1}}}}`,
			[]string{"spec.github.requestLimits"}},
		{"repository with mirrors", `{kind: Repository, metadata: {annotations: {limpet/git-mirrors: "https://b/a, git@c:a.git"}}, spec: {type: git, git: {url: "https://h/a"}}}`, nil},
		{"a wrong mirror", `{kind: Repository, metadata: {annotations: {limpet/git-mirrors: "https://b/a https://ann:s3cr3t@c/a"}}, spec: {type: git, git: {url: "https://h/a"}}}`, []string{"metadata.annotations[limpet/git-mirrors]"}},
		{"mirrors of a directory", `{kind: Repository, metadata: {annotations: {limpet/git-mirrors: "https://b/a"}}, spec: {type: local, local: {path: /srv}}}`, []string{"metadata.annotations[limpet/git-mirrors]"}},
		{"repository without spec", `{kind: Repository}`, []string{"spec"}},
		{"spec of the wrong type", `{kind: Repository, spec: 3}`, []string{"spec", "spec.type"}},
		{"type missing", `{kind: Repository, spec: {title: x}}`, []string{"spec.type"}},
		{"type unknown", `{kind: Repository, spec: {type: svn, svn: {}}}`, []string{"spec.type"}},
		{"type of the wrong type", `{kind: Repository, spec: {type: 1}}`, []string{"spec.type"}},
		{"block missing", `{kind: Repository, spec: {type: github, git: {url: "https://h/a"}}}`, []string{"spec.github", "spec.git"}},
		{"local beside git", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, local: {path: /x}, gitlab: {url: "https://h/b"}}}`,
			[]string{"spec.local"}},
		{"members that no rule looks at", `{kind: Repository, spec: {type: bitbucket, bitbucket: {url: "https://h/a", email: 7}, gitlab: {url: 7, repoID: x}, githubEnterprise: 7, webhook: {disabled: "yes"}}}`,
			[]string{"spec.githubEnterprise"}},
		{"members of a local block", `{kind: Repository, spec: {type: local, local: {path: /x, url: 7, branch: [], tokenUser: {}}}}`,
			[]string{"spec.local.branch"}},
		{"members of a connection that no rule looks at",
			`{kind: Connection, spec: {type: gitlab, github: 7, githubEnterprise: {appID: 7}, githubEnterpriseOAuth: {serverUrl: 7}, bitbucket: {workspace: 7}, webhook: {disabled: 7}}}`,
			[]string{"spec.bitbucket.workspace"}},
		{"url missing", `{kind: Repository, spec: {type: git, git: {branch: main}}}`, []string{"spec.git.url"}},
		{"url with a password", `{kind: Repository, spec: {type: git, git: {url: "https://u:hunter2@h/a"}}}`, []string{"spec.git.url"}},
		{"user with a password", `{kind: Repository, spec: {type: git, git: {url: "https://h/a", tokenUser: "git:hunter2"}}}`,
			[]string{"spec.git.tokenUser"}},
		{"values without end", `{kind: Repository, spec: {type: "` + endless + `"}}`, []string{"spec.type"}},
		{"a branch without end", `{kind: Repository, spec: {type: git, git: {url: "https://h/a", branch: "` + endless +
			`.."}, connection: {name: "` + endless + `."}}}`, []string{"spec.git.branch", "spec.connection.name"}},
		{"ssh for github", `{kind: Repository, spec: {type: github, github: {url: "ssh://git@github.com/a/b"}}}`, []string{"spec.github.url"}},
		{"enterprise without server", `{kind: Repository, spec: {type: githubEnterprise, githubEnterprise: {url: "https://h/a/b"}}}`,
			[]string{"spec.githubEnterprise.serverUrl"}},
		{"branch illegal", `{kind: Repository, spec: {type: git, git: {url: "https://h/a", branch: "a..b"}}}`, []string{"spec.git.branch"}},
		{"path unsafe", `{kind: Repository, spec: {type: git, git: {url: "https://h/a", path: "../etc"}}}`, []string{"spec.git.path"}},
		{"local path missing", `{kind: Repository, spec: {type: local, local: {}}}`, []string{"spec.local.path"}},
		{"local path climbing", `{kind: Repository, spec: {type: local, local: {path: /srv/../etc}}}`, []string{"spec.local.path"}},
		{"branch workflow of a directory", `{kind: Repository, spec: {type: local, local: {path: /a}, workflows: [write, branch]}}`,
			[]string{"spec.workflows[1]"}},
		{"unknown workflow", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, workflows: [push]}}`,
			[]string{"spec.workflows[0]"}},
		{"workflows of the wrong type", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, workflows: write}}`,
			[]string{"spec.workflows"}},
		{"target missing", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, sync: {enabled: true}}}`,
			[]string{"spec.sync.target"}},
		{"target not needed", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, sync: {enabled: false}}}`, nil},
		{"target unknown", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, sync: {target: root}}}`,
			[]string{"spec.sync.target"}},
		{"interval negative", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, sync: {intervalSeconds: -1}}}`,
			[]string{"spec.sync.intervalSeconds"}},
		{"interval as text", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, sync: {intervalSeconds: "60"}}}`,
			[]string{"spec.sync.intervalSeconds"}},
		{"interval as fraction", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, sync: {intervalSeconds: 1.5}}}`,
			[]string{"spec.sync.intervalSeconds"}},
		{"reserved name", `{kind: Repository, metadata: {name: github}, spec: {type: git, git: {url: "https://h/a"}}}`,
			[]string{"metadata.name"}},
		{"name too long for a label", `{kind: Repository, metadata: {name: ` + long + `}, spec: {type: git, git: {url: "https://h/a"}}}`,
			[]string{"metadata.name"}},
		{"known finalizers", `{kind: Repository, metadata: {name: r, finalizers: [remove-orphan-resources, remove-pending-jobs, cleanup]}, spec: {type: git, git: {url: "https://h/a"}}}`, nil},
		{"another controller's finalizer", `{kind: Repository, metadata: {name: r, finalizers: [example.com/mine]}, spec: {type: git, git: {url: "https://h/a"}}}`, nil},
		{"unknown finalizer", `{kind: Repository, metadata: {name: r, finalizers: [tidy-up]}, spec: {type: git, git: {url: "https://h/a"}}}`,
			[]string{"metadata.finalizers[0]"}},
		{"release and remove", `{kind: Repository, metadata: {name: r, finalizers: [release-orphan-resources, remove-orphan-resources]}, spec: {type: git, git: {url: "https://h/a"}}}`, []string{"metadata.finalizers[0]"}},
		{"sink", `{kind: Repository, metadata: {name: r, annotations: {limpet/sink-dir: /var/lib/grafana}}, spec: {type: git, git: {url: "https://h/a"}}}`, nil},
		{"sink relative", `{kind: Repository, metadata: {name: r, annotations: {limpet/sink-dir: a/b}}, spec: {type: git, git: {url: "https://h/a"}}}`, []string{"metadata.annotations[limpet/sink-dir]"}},
		{"sink named as a temporary directory", `{kind: Repository, metadata: {name: r, annotations: {limpet/sink-dir: /s/.all.limpet-new-zz}}, spec: {type: git, git: {url: "https://h/a"}}}`, []string{"metadata.annotations[limpet/sink-dir]"}},
		{"sink climbing", `{kind: Repository, metadata: {name: r, annotations: {limpet/sink-dir: /a/../b}}, spec: {type: git, git: {url: "https://h/a"}}}`, []string{"metadata.annotations[limpet/sink-dir]"}},
		{"a tag", `{kind: Repository, metadata: {name: r, annotations: {limpet/git-ref: "tag:v1.0.0"}}, spec: {type: git, git: {url: "https://h/a", branch: main}, workflows: []}}`, nil},
		{"a range of versions", `{kind: Repository, metadata: {name: r, annotations: {limpet/git-ref: "semver:>=1.0.0 <2.0.0 prefix:app/"}}, spec: {type: github, github: {url: "https://h/a"}}}`, nil},
		{"no known revision", `{kind: Repository, metadata: {name: r, annotations: {limpet/git-ref: v1.0.0}}, spec: {type: git, git: {url: "https://h/a"}}}`, []string{"metadata.annotations[limpet/git-ref]"}},
		{"two revisions", `{kind: Repository, metadata: {name: r, annotations: {limpet/git-ref: "tag:v1 semver:1.x"}}, spec: {type: git, git: {url: "https://h/a"}}}`, []string{"metadata.annotations[limpet/git-ref]"}},
		{"a tag that is written to", `{kind: Repository, metadata: {name: r, annotations: {limpet/git-ref: "tag:v1"}}, spec: {type: git, git: {url: "https://h/a"}, workflows: [write]}}`, nil},
		{"a tag of a directory", `{kind: Repository, metadata: {name: r, annotations: {limpet/git-ref: "tag:v1"}}, spec: {type: local, local: {path: /a}}}`, []string{"metadata.annotations[limpet/git-ref]"}},
		{"bad label", `{kind: Repository, metadata: {name: r, labels: {a: "no blanks"}}, spec: {type: git, git: {url: "https://h/a"}}}`,
			[]string{"metadata.labels"}},
		{"annotations too large", `{kind: Job, metadata: {name: j, annotations: {a: ` + strings.Repeat("x", 262145) +
			`}}, spec: {action: pull, repository: r, pull: {}}}`, []string{"metadata.annotations"}},
		{"connection name bad", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, connection: {name: "A B"}}}`,
			[]string{"spec.connection.name"}},
		{"token and connection", `{kind: Repository, spec: {type: github, github: {url: "https://github.com/a/b"}, connection: {name: c}}, secure: {token: {create: x}}}`, []string{"spec.connection"}},
		{"pull requests of plain git", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, pullRequest: {titleTemplate: x}}}`,
			[]string{"spec.pullRequest"}},
		{"pull requests of GitHub", `{kind: Repository, spec: {type: github, github: {url: "https://github.com/a/b"}, pullRequest: {titleTemplate: x}}}`, nil},
		{"webhook base bad", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}, webhook: {baseUrl: "grafana.example.com"}}}`,
			[]string{"spec.webhook.baseUrl"}},
		{"being deleted", `{kind: Repository, metadata: {name: r, deletionTimestamp: "2026-11-20T10:00:00Z"}, spec: {}}`, nil},
		{"secure of the wrong type", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}}, secure: {token: hunter2}}`,
			[]string{"secure.token"}},
		{"secure by name", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}}, secure: {token: {name: my-secret}}}`, nil},
		{"secure empty", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}}, secure: {token: {create: ""}}}`,
			[]string{"secure.token.create"}},
		{"secure too long", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}}, secure: {token: {create: hunter2` +
			strings.Repeat("x", maxSecureValue) + `}}}`, []string{"secure.token.create"}},
		{"secure at its limit", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}}, secure: {token: {create: ` +
			strings.Repeat("x", maxSecureValue) + `}}}`, nil},
		{"secure twice", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}}, secure: {token: {create: hunter2, name: x}}}`,
			[]string{"secure.token"}},
		{"secure unknown member", `{kind: Repository, spec: {type: git, git: {url: "https://h/a"}}, secure: {token: {value: hunter2}}}`,
			[]string{"secure.token.value"}},

		{"connection", goodConnection, nil},
		{"connection with PEM", goodConnection + "secure: {privateKey: {create: " + fmt.Sprintf("%q", pemKey) + "}}", nil},
		{"connection with base64 of PEM", goodConnection + "secure: {privateKey: {create: " + base64.StdEncoding.EncodeToString([]byte(pemKey)) +
			"}}", nil},
		{"connection with a bad key", goodConnection + "secure: {privateKey: {create: hunter2}}", []string{"secure.privateKey.create"}},
		{"connection without spec", `{kind: Connection}`, []string{"spec"}},
		{"connection type unknown", `{kind: Connection, spec: {type: sourceforge}}`, []string{"spec.type"}},
		{"connection block missing", `{kind: Connection, spec: {type: github}}`, []string{"spec.github"}},
		{"connection ids missing", `{kind: Connection, spec: {type: github, github: {}}}`,
			[]string{"spec.github.appID", "spec.github.installationID"}},
		{"connection ids as numbers", `{kind: Connection, spec: {type: github, github: {appID: 1, installationID: "a"}}}`,
			[]string{"spec.github.appID", "spec.github.installationID"}},
		{"connection enterprise", `{kind: Connection, spec: {type: githubEnterprise, githubEnterprise: {appID: "1", installationID: "2", serverUrl: "https://ghe"}}}`, nil},
		{"connection enterprise without server",
			`{kind: Connection, spec: {type: githubEnterprise, githubEnterprise: {appID: "1", installationID: "2"}}}`,
			[]string{"spec.githubEnterprise.serverUrl"}},
		{"connection oauth", `{kind: Connection, spec: {type: githubOAuth, oauth: {clientID: abc}}}`, nil},
		{"connection oauth without client", `{kind: Connection, spec: {type: githubOAuth, oauth: {}}}`, []string{"spec.oauth.clientID"}},
		{"connection enterprise oauth", `{kind: Connection, spec: {type: githubEnterpriseOAuth, oauth: {clientID: abc}, githubEnterpriseOAuth: {serverUrl: "ftp://x"}}}`, []string{"spec.githubEnterpriseOAuth.serverUrl"}},
		{"connection url bad", `{kind: Connection, spec: {type: gitlab, url: "https://u:hunter2@x"}}`, []string{"spec.url"}},

		{"pull", `{kind: Job, spec: {action: pull, repository: r, pull: {incremental: true}}}`, nil},
		{"pull without options", `{kind: Job, spec: {action: pull, repository: r}}`, []string{"spec.pull"}},
		{"pull with a wrong option", `{kind: Job, spec: {action: pull, repository: r, pull: {incremental: "yes"}}}`,
			[]string{"spec.pull.incremental"}},
		{"job without anything", `{kind: Job}`, []string{"spec.action", "spec.repository"}},
		{"unknown action", `{kind: Job, spec: {action: fetch, repository: r}}`, []string{"spec.action"}},
		{"repository not a name", `{kind: Job, spec: {action: pull, repository: "A/B", pull: {}}}`, []string{"spec.repository"}},
		{"push", `{kind: Job, spec: {action: push, repository: r, push: {branch: main, path: a/b, resources: [{name: x, kind: Dashboard, group: dashboard.grafana.app}]}}}`, nil},
		{"push of everything", `{kind: Job, spec: {action: push, repository: r, push: {}}}`, nil},
		{"push to a bad place", `{kind: Job, spec: {action: push, repository: r, push: {branch: "a b", path: "../x"}}}`,
			[]string{"spec.push.branch", "spec.push.path"}},
		{"push of a playlist", `{kind: Job, spec: {action: push, repository: r, push: {resources: [{name: x, kind: Playlist, group: playlist.grafana.app}]}}}`, []string{"spec.push.resources[0].kind", "spec.push.resources[0].group"}},
		{"push of nothing named", `{kind: Job, spec: {action: push, repository: r, push: {resources: [{}]}}}`,
			[]string{"spec.push.resources[0].name", "spec.push.resources[0].kind"}},
		{"push of too many", `{kind: Job, spec: {action: push, repository: r, push: {resources: [` + strings.Repeat("{},", 101) + `]}}}`,
			[]string{"spec.push.resources"}},
		{"pr", `{kind: Job, spec: {action: pr, repository: r, pr: {ref: x, pr: 3}}}`, nil},
		{"pr without options", `{kind: Job, spec: {action: pr, repository: r}}`, []string{"spec.pr"}},
		{"migrate", `{kind: Job, spec: {action: migrate, repository: r, migrate: {history: true}}}`, nil},
		{"migrate without options", `{kind: Job, spec: {action: migrate, repository: r}}`, []string{"spec.migrate"}},
		{"delete", `{kind: Job, spec: {action: delete, repository: r, delete: {paths: [a/b.json, c/]}}}`, nil},
		{"delete of nothing", `{kind: Job, spec: {action: delete, repository: r, delete: {}}}`, []string{"spec.delete.paths"}},
		{"delete of bad paths", `{kind: Job, spec: {action: delete, repository: r, delete: {paths: ["", "../x", 3]}}}`,
			[]string{"spec.delete.paths[2]", "spec.delete.paths[0]", "spec.delete.paths[1]", "spec.delete.paths[2]"}},
		{"move", `{kind: Job, spec: {action: move, repository: r, move: {paths: [a.json], targetPath: b/}}}`, nil},
		{"move to a file", `{kind: Job, spec: {action: move, repository: r, move: {paths: [a.json], targetPath: b}}}`,
			[]string{"spec.move.targetPath"}},
		{"move out of it", `{kind: Job, spec: {action: move, repository: r, move: {paths: [a.json], targetPath: ../b/}}}`,
			[]string{"spec.move.targetPath"}},
		{"move to nowhere", `{kind: Job, spec: {action: move, repository: r, move: {paths: [a.json]}}}`, []string{"spec.move.targetPath"}},
		{"actions without options", `{kind: Job, spec: {action: releaseResources, repository: r}}`, nil},
		{"fix", `{kind: Job, spec: {action: fixFolderMetadata, repository: r}}`, nil},
		{"test", `{kind: Job, spec: {action: test, repository: r, test: {duration: 10s, progressUpdates: 20}}}`, nil},

		{"historic job", `{kind: HistoricJob, spec: {action: pull, repository: r}}`, nil},
		{"historic job without spec", `{kind: HistoricJob}`, []string{"spec.action", "spec.repository"}},

		{"secret", `{apiVersion: v1, kind: Secret, data: {token: aHVudGVyMg==}, stringData: {user: x}}`, nil},
		{"secret not base64", `{apiVersion: v1, kind: Secret, data: {token: hunter2}}`, []string{"data[token]"}},
		{"secret of the wrong type", `{apiVersion: v1, kind: Secret, stringData: {token: 3}}`, []string{"stringData[token]"}},
		{"secret key bad", `{apiVersion: v1, kind: Secret, stringData: {"a/b": x}}`, []string{"stringData[a/b]"}},
		{"secret too large", `{apiVersion: v1, kind: Secret, stringData: {a: ` + strings.Repeat("x", maxSecretData+1) + `}}`, []string{"data"}},
		{"other kinds", `{apiVersion: dashboard.grafana.app/v1, kind: Dashboard, spec: 3}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, fault := range Check(object(t, c.text), nil) {
				got = append(got, fault.Field)
				if strings.Contains(fault.Error(), "hunter2") {
					t.Errorf("the fault repeats a secret: %v", fault)
				}
				if len(fault.ErrorBody()) > 1000 {
					t.Errorf("the fault is %d bytes long", len(fault.ErrorBody()))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("faults at %q, want %q\n%v", got, c.want, Check(object(t, c.text), nil))
			}
		})
	}
}

func TestValidateChange(t *testing.T) {
	t.Parallel()
	const stored = `
kind: Repository
metadata: {name: dashboards}
spec: {type: git, git: {url: https://h/a}, sync: {target: folder}}
secure: {token: {name: inline-1}}
`
	synced := stored + "status: {stats: [{group: folder.grafana.app, resource: folders, count: 1}]}\n"
	for _, c := range []struct {
		name, old, text string
		want            []string
	}{
		{"nothing", synced, stored, nil},
		{"title", synced, strings.Replace(stored, "type: git,", "title: x, type: git,", 1), nil},
		{"type", stored, strings.ReplaceAll(stored, "type: git, git:", "type: gitlab, gitlab:"), []string{"spec.type"}},
		{"target before the first sync", stored, strings.Replace(stored, "target: folder", "target: instance", 1), nil},
		{"target after it", synced, strings.Replace(stored, "target: folder", "target: instance", 1), []string{"spec.sync.target"}},
		{"url with the old token", stored, strings.Replace(stored, "h/a", "h/b", 1), []string{"secure.token.create"}},
		{"url with the token left out", stored, strings.Replace(strings.Replace(stored, "h/a", "h/b", 1), "secure:", "x:", 1),
			[]string{"secure.token.create"}},
		{"url with a new token", stored, strings.Replace(strings.Replace(stored, "h/a", "h/b", 1), "name: inline-1", "create: x", 1), nil},
		{"url with the token of a patch", stored, strings.Replace(strings.Replace(stored, "h/a", "h/b", 1), "name: inline-1",
			"name: inline-1, create: x", 1), nil},
		{"url with another secret", stored, strings.Replace(strings.Replace(stored, "h/a", "h/b", 1), "name: inline-1", "name: other", 1), nil},
		{"url without token", stored, strings.Replace(strings.Replace(stored, "h/a", "h/b", 1), "name: inline-1", "remove: true", 1), nil},
		{"reserved names stay", strings.Replace(stored, "name: dashboards", "name: github", 1),
			strings.Replace(stored, "name: dashboards", "name: github", 1), nil},
		{"type of a secret", `{apiVersion: v1, kind: Secret, type: Opaque}`, `{apiVersion: v1, kind: Secret, type: other}`, []string{"type"}},
		{"immutable secret", `{apiVersion: v1, kind: Secret, type: a, immutable: true, data: {a: YQ==}}`,
			`{apiVersion: v1, kind: Secret, type: a, immutable: true, data: {a: Yg==}}`, []string{"data"}},
		{"immutable secret unchanged", `{apiVersion: v1, kind: Secret, type: a, immutable: true, data: {a: YQ==}}`,
			`{apiVersion: v1, kind: Secret, type: a, immutable: true, data: {a: YQ==}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, fault := range Check(object(t, c.text), object(t, c.old)) {
				got = append(got, fault.Field)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("faults at %q, want %q", got, c.want)
			}
		})
	}
}

func TestValidateNothing(t *testing.T) {
	t.Parallel()
	if errs := Check(nil, nil); errs != nil {
		t.Errorf("Validate(nil) = %v", errs)
	}
	if errs := Check(&unstructured.Unstructured{Object: map[string]any{}}, nil); len(errs) != 0 {
		t.Errorf("Validate of an empty object = %v", errs)
	}
}
