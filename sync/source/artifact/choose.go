package artifact

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// Choose returns the newest artifact of a list, the newest first, that a key names: "latest", a
// digest with or without "sha256:", a commit or how it begins, a revision, its branch or tag, or a
// time (RFC 3339 or seconds since 1970), which names what was the newest then.
func Choose(list []Artifact, key string) (Artifact, error) {
	at, isTime := parseTime(key)
	for _, is := range []func(Artifact) bool{
		func(Artifact) bool { return key == "latest" },
		func(a Artifact) bool { return a.Digest == key || strings.TrimPrefix(a.Digest, "sha256:") == key },
		func(a Artifact) bool { return a.Revision == key || Commit(a.Revision) == key },
		func(a Artifact) bool { return key != "" && Version(a.Revision) == key },
		func(a Artifact) bool { return len(key) >= minPrefix && strings.HasPrefix(Commit(a.Revision), key) },
		func(a Artifact) bool { return isTime && !a.Updated.After(at) },
	} {
		if i := slices.IndexFunc(list, is); i >= 0 {
			return list[i], nil
		}
	}
	return Artifact{}, ErrNotFound
}

// minPrefix is the least length of the begin of a commit, that of short ones.
const minPrefix = 7

// Pair returns two artifacts of a list by their keys. Without a key from it is the one before to,
// or the zero one.
func Pair(list []Artifact, from, to string) (a, b Artifact, err error) {
	if b, err = Choose(list, to); err != nil {
		return a, b, fmt.Errorf("revision %q: %w", to, err)
	}
	if from != "" {
		if a, err = Choose(list, from); err != nil {
			err = fmt.Errorf("revision %q: %w", from, err)
		}
	} else if i := slices.IndexFunc(list, func(c Artifact) bool { return c.Revision == b.Revision && c.Digest == b.Digest }) + 1; i < len(list) {
		a = list[i]
	}
	return a, b, err
}

// OpenIn opens the file of an artifact below the directory of a store of another process. Its
// digest is checked.
func OpenIn(ctx context.Context, dir string, a Artifact) (*os.File, error) {
	path, err := (&Store{o: Options{Dir: dir}}).path(a)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open artifact %s: %w", a.Revision, err)
	}
	got, err := digest(ctx, f)
	if err == nil && got != a.Digest {
		err = &CorruptError{a.Digest, got}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Magic is how the bytes of a tar.gz begin.
const Magic = "\x1f\x8b"

// PlainFile returns the name of the one file that an artifact is whose bytes are no tar.gz: an index
// of charts, or a layer that was copied.
func PlainFile(a Artifact) string {
	if path.Ext(a.Path) == ".yaml" {
		return "index.yaml"
	}
	return "layer"
}
