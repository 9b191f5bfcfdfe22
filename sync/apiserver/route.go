package apiserver

import (
	"net/http"
	"net/url"
	"strings"

	"limpet/sync/api"
)

// Verbs of the API, as discovery lists them.
const (
	verbGet              = "get"
	verbList             = "list"
	verbWatch            = "watch"
	verbCreate           = "create"
	verbUpdate           = "update"
	verbPatch            = "patch"
	verbDelete           = "delete"
	verbDeleteCollection = "deletecollection"
)

// resourceVerbs are the verbs of every kind.
var resourceVerbs = []string{verbCreate, verbDelete, verbDeleteCollection, verbGet, verbList, verbPatch, verbUpdate, verbWatch}

// route reads the path and method of a request for objects:
//
//	/api/v1/[watch/][namespaces/NS/]PLURAL[/NAME[/SUBRESOURCE/...]]
//	/apis/GROUP/VERSION/[watch/][namespaces/NS/]PLURAL[/NAME[/SUBRESOURCE/...]]
//
// ok is false for a path that is not served.
func route(req *http.Request) (info requestInfo, verb string, ok bool) {
	parts, ok := segments(req.URL)
	if !ok || len(parts) < 3 {
		return info, "", false
	}
	group, version := "", parts[1]
	switch parts[0] {
	case "api":
		parts = parts[2:]
	case "apis":
		if len(parts) < 4 {
			return info, "", false
		}
		group, version = parts[1], parts[2]
		parts = parts[3:]
	default:
		return info, "", false
	}
	watching := parts[0] == "watch"
	if watching {
		parts = parts[1:]
	}
	if len(parts) >= 3 && parts[0] == "namespaces" {
		info.Namespace = parts[1]
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return info, "", false
	}
	info.Kind, ok = kindOf(group, parts[0])
	if !ok || !served(info.Kind, version) {
		return info, "", false
	}
	info.Version = version
	if len(parts) > 1 {
		info.Name = parts[1]
	}
	if len(parts) > 2 {
		info.Subresource, info.Rest = parts[2], parts[3:]
	}
	verb = verbOf(req, info, watching)
	// Only lists and watches go across namespaces.
	if info.Namespace == "" && verb != verbList && verb != verbWatch {
		return info, "", false
	}
	return info, verb, true
}

func verbOf(req *http.Request, info requestInfo, watching bool) string {
	if watching {
		return verbWatch
	}
	switch req.Method {
	case http.MethodPost:
		return verbCreate
	case http.MethodPut:
		return verbUpdate
	case http.MethodPatch:
		return verbPatch
	case http.MethodDelete:
		if info.Name == "" {
			return verbDeleteCollection
		}
		return verbDelete
	case http.MethodGet, http.MethodHead:
		switch {
		case info.Name != "":
			return verbGet
		case flagOf(req.URL.Query(), "watch"):
			return verbWatch
		}
		return verbList
	}
	return strings.ToLower(req.Method)
}

// segments splits the path at its slashes and resolves escapes in each part, so
// that an escaped slash stays inside its part.
func segments(u *url.URL) ([]string, bool) {
	path := strings.Trim(u.EscapedPath(), "/")
	if path == "" {
		return nil, true
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil {
			return nil, false
		}
		parts[i] = plain
	}
	return parts, true
}

// flagOf reads a boolean parameter: present and not "false" or "0".
func flagOf(q url.Values, name string) bool {
	values, ok := q[name]
	return ok && !(values[0] == "0" || strings.EqualFold(values[0], "false"))
}

// verbsOf returns the verbs of a subresource of a kind; nil if there is none.
func verbsOf(k api.Kind, subresource string) []string {
	if subresource == "status" && k.Status {
		return []string{verbGet, verbPatch, verbUpdate}
	}
	return nil
}
