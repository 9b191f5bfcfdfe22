package resources

import (
	"crypto/sha256"
	"encoding/base64"
	"path"
	"strings"

	"limpet/sync/api/repopath"
)

// Names that are made from paths. They have to be those that Grafana makes from the same
// repository, byte for byte: another name would be another folder, and the next sync of the other
// party would delete ours.

const (
	maxName = 40 // bytes; the limit of a Grafana UID
	minHash = 8  // bytes of the hash that a long name leaves room for
)

// FolderID returns the name of the folder for directory dir of a repository.
// One slash at the end of dir is cut; all others take part in the hash.
func FolderID(repository, dir string) string {
	dir = strings.TrimSuffix(dir, "/")
	return suffixed(repository, dir, sanitise(dir[strings.LastIndexByte(dir, '/')+1:]))
}

// FileID returns the name of a dashboard whose file p has none. The extension
// takes no part, so that a file may change its format and keep its name.
func FileID(repository, p string) string {
	p = strings.TrimSuffix(p, path.Ext(p))
	return suffixed(repository, p, sanitise(repopath.Base(p)))
}

// suffixed appends to s as much as fits of a hash over repository, key and s.
// The whole of s is hashed, a shortened s is kept.
func suffixed(repository, key, s string) string {
	sum := sha256.Sum256([]byte(repository + "/" + key + s))
	hash := sanitise(base64.URLEncoding.EncodeToString(sum[:]))
	if limit := maxName - minHash - 1; len(s) > limit {
		s = s[:limit]
	}
	if room := maxName - len(s) - 1; len(hash) > room {
		hash = hash[:room]
	}
	return sanitise(s + "-" + hash)
}

// sanitise makes s a name that Kubernetes takes: lower case letters, digits, dots and single
// hyphens, at most 40 bytes. Underscores and slashes become hyphens, everything else is dropped.
func sanitise(s string) string {
	out := make([]byte, 0, maxName)
	for _, r := range strings.ToLower(s) {
		if len(out) == maxName {
			break
		}
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.':
			out = append(out, byte(r))
		case r == '-' || r == '_' || r == '/':
			if n := len(out); n == 0 || out[n-1] != '-' {
				out = append(out, '-')
			}
		}
	}
	return strings.Trim(strings.Trim(string(out), "-"), ".")
}
