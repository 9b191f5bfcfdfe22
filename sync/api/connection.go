package api

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Connections is the resource of Connection objects.
var Connections = schema.GroupVersionResource{Group: ProvisioningGroup, Version: "v0alpha1", Resource: "connections"}

// Connection is a typed view of a Connection.
type Connection struct {
	Spec   ConnectionSpec         `json:"spec"`
	Secure map[string]SecureValue `json:"secure"`
	Status ConnectionStatus       `json:"status"`
}

// ConnectionStatus holds the fields that limpet reads.
type ConnectionStatus struct {
	ObservedGeneration int64        `json:"observedGeneration,omitempty"`
	Health             HealthState  `json:"health"`
	Conditions         []Condition  `json:"conditions,omitempty"`
	FieldErrors        []FieldError `json:"fieldErrors,omitempty"`
	Token              TokenStatus  `json:"token"`
}

// ConnectionSpec holds the fields that limpet acts on.
type ConnectionSpec struct {
	Title            string     `json:"title"`
	Type             string     `json:"type"`
	URL              string     `json:"url,omitempty"`
	GitHub           *GitHubApp `json:"github,omitempty"`
	GitHubEnterprise *GitHubApp `json:"githubEnterprise,omitempty"`
	EnterpriseOAuth  *struct {
		ServerURL string `json:"serverUrl"`
	} `json:"githubEnterpriseOAuth,omitempty"`
	Bitbucket *struct {
		Workspace string `json:"workspace"`
	} `json:"bitbucket,omitempty"`
	Webhook *struct {
		Disabled bool `json:"disabled,omitempty"`
	} `json:"webhook,omitempty"`
}

// GitHubApp is the identity of a GitHub App: numbers, written as text. ServerURL is that of a GitHub Enterprise server.
type GitHubApp struct {
	AppID          string `json:"appID"`
	InstallationID string `json:"installationID"`
	ServerURL      string `json:"serverUrl,omitempty"`
}

// ConnectionView reads a Connection as leniently as RepositoryView reads a Repository.
func ConnectionView(u *unstructured.Unstructured) (Connection, error) { return view[Connection](u) }

// Server is the address of the host that a Connection is for, "" when its spec has none. It need not be a valid URL.
func (s ConnectionSpec) Server() string {
	switch s.Type {
	case "github", "githubOAuth":
		return cmp.Or(s.URL, "https://github.com")
	case "githubEnterprise":
		if s.GitHubEnterprise != nil {
			return s.GitHubEnterprise.ServerURL
		}
	case "githubEnterpriseOAuth":
		if s.EnterpriseOAuth != nil {
			return s.EnterpriseOAuth.ServerURL
		}
	case "gitlab":
		return cmp.Or(s.URL, "https://gitlab.com")
	case "bitbucket":
		return cmp.Or(s.URL, "https://bitbucket.org")
	}
	return ""
}
