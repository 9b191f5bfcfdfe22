package apiserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
)

// The part of OpenAPI v3 that kubectl create and apply read before they send a
// request: it declares fieldValidation and dryRun of writes.

const metaSchema = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// serveOpenAPIIndex sends the list of documents.
func (s *Server) serveOpenAPIIndex(w http.ResponseWriter, req *http.Request) {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]entry{}
	for _, group := range append([]string{""}, groups()...) {
		for _, version := range versionsOf(group) {
			path := strings.TrimPrefix(prefixOf(group, version), "/")
			data, err := json.Marshal(openAPIDocument(group, version))
			if err != nil {
				s.answerError(w, req, err)
				return
			}
			sum := sha256.Sum256(data)
			paths[path] = entry{"/openapi/v3/" + path + "?hash=" + strings.ToUpper(hex.EncodeToString(sum[:]))}
		}
	}
	s.answerAny(w, media{Pretty: pretty(req)}, http.StatusOK, map[string]any{"paths": paths})
}

// serveOpenAPI sends the document of one version of a group.
func (s *Server) serveOpenAPI(w http.ResponseWriter, req *http.Request) {
	for _, group := range append([]string{""}, groups()...) {
		for _, version := range versionsOf(group) {
			if "/"+strings.TrimSuffix(req.PathValue("path"), "/") == prefixOf(group, version) {
				s.answerAny(w, media{Pretty: pretty(req)}, http.StatusOK, openAPIDocument(group, version))
				return
			}
		}
	}
	s.answerError(w, req, pathNotFound())
}

// prefixOf returns the path of a version of a group.
func prefixOf(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// jsonObject is a JSON object under construction.
type jsonObject = map[string]any

func openAPIDocument(group, version string) jsonObject {
	paths, schemas := jsonObject{}, jsonObject{metaSchema: objectMetaSchema()}
	for _, k := range kindsOf(group, version) {
		base := prefixOf(group, version)
		all, one := base+"/namespaces/{namespace}/"+k.Plural, base+"/namespaces/{namespace}/"+k.Plural+"/{name}"
		paths[base+"/"+k.Plural] = jsonObject{"get": operation(k, version, "list", listQuery)}
		paths[all] = jsonObject{
			"get":        operation(k, version, "list", listQuery),
			"post":       operation(k, version, "post", writeQuery),
			"delete":     operation(k, version, "deletecollection", listQuery),
			"parameters": pathParameters("namespace"),
		}
		item := jsonObject{
			"get":        operation(k, version, "get", nil),
			"put":        operation(k, version, "put", writeQuery),
			"patch":      operation(k, version, "patch", slices.Concat(writeQuery, []string{"force"})),
			"delete":     operation(k, version, "delete", []string{"dryRun"}),
			"parameters": pathParameters("namespace", "name"),
		}
		paths[one] = item
		if k.Status {
			paths[one+"/status"] = jsonObject{
				"get":        item["get"],
				"put":        item["put"],
				"patch":      item["patch"],
				"parameters": item["parameters"],
			}
		}
		schemas[schemaName(k, version)] = kindSchema(k, version)
		schemas[schemaName(k, version)+"List"] = listSchema(k, version)
	}
	return jsonObject{"openapi": "3.0.0", "info": jsonObject{"title": "limpet", "version": "unversioned"},
		"paths": paths, "components": jsonObject{"schemas": schemas}}
}

var (
	writeQuery = []string{"dryRun", "fieldManager", "fieldValidation", "pretty"}
	listQuery  = []string{"allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
		"resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch"}
)

func operation(k api.Kind, version, action string, query []string) jsonObject {
	parameters := []any{}
	for _, name := range query {
		kind := "string"
		switch name {
		case "force", "watch", "allowWatchBookmarks", "sendInitialEvents":
			kind = "boolean"
		case "limit", "timeoutSeconds":
			kind = "integer"
		}
		parameters = append(parameters, jsonObject{"name": name, "in": "query", "schema": jsonObject{"type": kind, "uniqueItems": true}})
	}
	name := schemaName(k, version)
	if action == "list" {
		name += "List"
	}
	content := jsonObject{mediaJSON: jsonObject{"schema": reference(name)}}
	out := jsonObject{
		"parameters":                      parameters,
		"responses":                       jsonObject{"200": jsonObject{"description": "OK", "content": content}},
		"x-kubernetes-action":             action,
		"x-kubernetes-group-version-kind": gvkOf(k, version, k.Kind),
	}
	switch action {
	case "post", "put":
		out["requestBody"] = jsonObject{"required": true, "content": content}
	case "patch":
		types := jsonObject{}
		for _, t := range patchTypes(k) {
			types[t] = jsonObject{"schema": jsonObject{"type": "object"}}
		}
		out["requestBody"] = jsonObject{"required": true, "content": types}
	}
	return out
}

func pathParameters(names ...string) (out []any) {
	for _, name := range names {
		out = append(out, jsonObject{
			"name":     name,
			"in":       "path",
			"required": true,
			"schema":   jsonObject{"type": "string", "uniqueItems": true},
		})
	}
	return out
}

func gvkOf(k api.Kind, version, kind string) jsonObject {
	return jsonObject{"group": k.Group, "version": version, "kind": kind}
}

func reference(name string) jsonObject { return jsonObject{"$ref": "#/components/schemas/" + name} }

// schemaName returns the name of a kind's schema: its group reversed, as the real
// server names custom resources.
func schemaName(k api.Kind, version string) string {
	if k.Group == "" {
		return "io.k8s.api.core." + version + "." + k.Kind
	}
	parts := strings.Split(k.Group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + version + "." + k.Kind
}

// kindSchema describes the top-level members of a kind.
func kindSchema(k api.Kind, version string) jsonObject {
	properties := jsonObject{
		"apiVersion": jsonObject{"type": "string", "description": metav1.TypeMeta{}.SwaggerDoc()["apiVersion"]},
		"kind":       jsonObject{"type": "string", "description": metav1.TypeMeta{}.SwaggerDoc()["kind"]},
		"metadata": jsonObject{
			"allOf":       []any{reference(metaSchema)},
			"description": "Standard object's metadata.",
			"default":     jsonObject{},
		},
	}
	for _, name := range topLevel(k) {
		schema := jsonObject{"x-kubernetes-preserve-unknown-fields": true}
		if slices.Contains(objectMembers(k), name) {
			schema["type"] = "object"
		}
		properties[name] = schema
	}
	return jsonObject{"type": "object", "properties": properties,
		"x-kubernetes-group-version-kind": []any{gvkOf(k, version, k.Kind)}}
}

func listSchema(k api.Kind, version string) jsonObject {
	return jsonObject{"type": "object", "required": []any{"items"}, "properties": jsonObject{
		"apiVersion": jsonObject{"type": "string"}, "kind": jsonObject{"type": "string"}, "metadata": jsonObject{"type": "object"},
		"items": jsonObject{"type": "array", "items": reference(schemaName(k, version))},
	}, "x-kubernetes-group-version-kind": []any{gvkOf(k, version, k.Kind+"List")}}
}

// objectMetaSchema describes the metadata that users write or read.
func objectMetaSchema() jsonObject {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	properties := jsonObject{}
	for name, kind := range map[string]string{
		"name": "string", "namespace": "string", "generateName": "string", "uid": "string", "resourceVersion": "string",
		"creationTimestamp": "string", "deletionTimestamp": "string", "generation": "integer", "deletionGracePeriodSeconds": "integer",
		"labels": "map", "annotations": "map", "finalizers": "array", "ownerReferences": "objects", "managedFields": "objects",
	} {
		p := jsonObject{"type": kind, "description": docs[name]}
		switch kind {
		case "map":
			p["type"], p["additionalProperties"] = "object", jsonObject{"type": "string", "default": ""}
		case "array":
			p["items"] = jsonObject{"type": "string", "default": ""}
		case "objects":
			p["type"], p["items"] = "array", jsonObject{"type": "object"}
		}
		properties[name] = p
	}
	return jsonObject{"type": "object", "description": docs[""], "properties": properties}
}
