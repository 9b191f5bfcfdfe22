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
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// connectionTypes are those of Grafana's Connection type.
var connectionTypes = []string{"github", "githubEnterprise", "githubOAuth", "githubEnterpriseOAuth", "gitlab", "bitbucket"}

func validateConnection(root node) {
	spec := root.object("spec")
	if !root.has("spec") {
		spec.required("", "a connection needs a spec with its type")
		return
	}
	for _, name := range []string{"title", "description"} {
		spec.text(name)
	}
	if url := spec.text("url"); url != "" {
		if err := checkWebURL(url); err != nil {
			spec.add(field.Invalid(spec.path.Child("url"), omitted{}, err.Error()))
		}
	}
	spec.object("webhook").flag("disabled")
	spec.object("bitbucket").text("workspace")
	kind, known := validateEnum(spec, "type", connectionTypes)
	if !known {
		return
	}
	for _, other := range []string{"github", "githubEnterprise", "githubEnterpriseOAuth"} {
		if other == kind {
			continue // checked below
		}
		block := spec.object(other)
		for _, name := range []string{"appID", "installationID", "serverUrl"} {
			block.text(name)
		}
	}
	switch kind {
	case "github", "githubEnterprise":
		validateApp(spec, kind)
	case "githubOAuth", "githubEnterpriseOAuth":
		oauth := requiredBlock(spec, "oauth", kind)
		if spec.has("oauth") && oauth.text("clientID") == "" && !oauth.wrong("clientID") {
			oauth.required("clientID", "the client id of the OAuth application")
		}
	}
	if kind == "githubEnterprise" || kind == "githubEnterpriseOAuth" {
		block := spec.object(kind)
		if kind == "githubEnterpriseOAuth" {
			block = requiredBlock(spec, kind, kind)
		}
		if server := block.text("serverUrl"); server == "" {
			if spec.has(kind) && !block.wrong("serverUrl") {
				block.required("serverUrl", "the address of the GitHub Enterprise server")
			}
		} else if err := checkWebURL(server); err != nil {
			block.add(field.Invalid(block.path.Child("serverUrl"), omitted{}, err.Error()))
		}
	}
	key := root.object("secure").object("privateKey")
	if value, ok := key.data["create"].(string); ok && value != "" {
		if _, err := PrivateKey(value); err != nil {
			key.add(field.Invalid(key.path.Child("create"), omitted{}, err.Error()))
		}
	}
}

// validateApp checks the identity of a GitHub App.
func validateApp(spec node, kind string) {
	app := requiredBlock(spec, kind, kind)
	if !spec.has(kind) {
		return
	}
	for _, name := range []string{"appID", "installationID"} {
		value := app.text(name)
		switch {
		case app.wrong(name):
		case value == "":
			app.required(name, "the id of the GitHub App's "+strings.TrimSuffix(name, "ID")+", as text")
		case strings.Trim(value, "0123456789") != "":
			app.invalid(name, "must be a number, written as text")
		}
	}
}

func requiredBlock(spec node, name, kind string) node {
	if !spec.has(name) {
		spec.required(name, "the type is "+kind+", so its settings belong here")
	}
	return spec.object(name)
}

// PrivateKey returns the PEM text of a private key that is given as PEM or as base64
// of it, which is what Grafana's own tests send. The error does not repeat the key.
func PrivateKey(value string) ([]byte, error) {
	text := []byte(value)
	if !strings.Contains(value, "-----BEGIN ") {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), ""))
		if err != nil {
			return nil, errors.New("must be a PEM private key or base64 of one")
		}
		text = decoded
	}
	block, _ := pem.Decode(text)
	if block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return nil, errors.New("must be a PEM private key or base64 of one")
	}
	return text, nil
}

// validateConnectionChange checks an update: a secret that was given for one server
// must not be sent to another.
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
