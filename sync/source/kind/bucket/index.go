package bucket

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
)

// index is what an artifact was made of. It lies beside it; without it all objects are read again.
type index struct {
	Origin  string           `json:"origin"`           // the bucket: an ETag says nothing of another one
	Region  string           `json:"region,omitempty"` // as the server has named it
	Rules   rules            `json:"rules"`
	Objects map[string]entry `json:"objects"` // by key
}

// rules are those of the bucket; zero = it has none.
type rules struct {
	ETag string `json:"etag,omitempty"`
	Text string `json:"text,omitempty"`
}

// entry is an object that the archive has.
type entry struct {
	ETag  string `json:"etag"`
	First string `json:"first"` // its ETag in the revision: the same bytes may have got another one since
	Size  int64  `json:"size"`
	Sum   string `json:"sum"` // of its bytes
}

// revision returns the revision in the form of Flux.
func (x index) revision() string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(x.Objects)) {
		fmt.Fprintf(h, "%s %s\n", key, x.Objects[key].First)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// checksum hashes what an artifact is made of besides its revision.
func (x index) checksum() string { return "sha256:" + hash(archive.Version, x.Origin, x.Rules.Text) }

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// origin names the bucket of a spec.
func (s *spec) origin() string { return s.Provider + " " + s.base.String() + " " + s.BucketName }

// remembered returns the index of the stored artifact, an empty one where there is none of this
// bucket.
func (u *upstream) remembered() (x index) {
	err := u.spec.kind.o.Artifacts.ReadIndex(u.key(), u.visit.Stored.Digest, &x)
	if err != nil || x.Origin != u.spec.origin() {
		return index{}
	}
	return x
}

// remember writes the index of an artifact.
func (u *upstream) remember(digest string) error {
	return u.spec.kind.o.Artifacts.WriteIndex(u.key(), digest, u.now)
}

func (u *upstream) key() artifact.Key { return artifact.KeyOf("Bucket", u.spec.namespace, u.spec.name) }
