package artifact

import (
	"encoding/json"
	"io"

	"limpet/state/atomicfile"
	"limpet/sync/fileid"
)

// indexSuffix is behind the name of an artifact for its index.
const indexSuffix = ".index"

// maxIndex bounds an index in bytes: that of a bucket with the most objects that an archive may have,
// 100,000, whose keys have their most bytes, 1,024, takes half of it.
const maxIndex = 256 << 20

// ReadIndex decodes what the kind of a source has kept of an artifact into v. The index goes with the
// artifact. After an error v may be half filled.
func (s *Store) ReadIndex(of Key, digest string, v any) error {
	path, err := s.indexPath(of, digest)
	if err != nil {
		return err
	}
	text, err := fileid.Read(path, maxIndex)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// WriteIndex keeps v of an artifact, which may still be in the making.
func (s *Store) WriteIndex(of Key, digest string, v any) error {
	path, err := s.indexPath(of, digest)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
}

func (s *Store) indexPath(of Key, digest string) (string, error) {
	path, err := s.path(Artifact{Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, Digest: digest})
	return path + indexSuffix, err
}
