package admission

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"maps"
	"slices"
	"strings"

	"limpet/sync/api"
	"limpet/sync/auth"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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

// validateConnectionChange checks an update: a secret that was given for one server must not be sent to another.
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
