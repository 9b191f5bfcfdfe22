package resources

import (
	"encoding/json"
	"errors"
	"fmt"
	"limpet/sync/api/repopath"
)

// MaxUID is the longest UID of a folder, in bytes. Source: Grafana.
const MaxUID = 40

// FolderMeta is what a folder file says: the stable UID of its directory's
// folder and, where it is not empty, the title.
type FolderMeta struct {
	UID, Title string
	Hash       string // of the file
	// Err returns why the file could not be used. The folder then keeps what it
	// has, or gets the names that it would have without the file.
	Err error
}

// FolderFileError reports why a folder file could not be used. It is a warning.
type FolderFileError struct {
	Path string
	Err  error
}

func (e *FolderFileError) Error() string {
	return fmt.Sprintf("read folder file %s: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *FolderFileError) Unwrap() error { return e.Err }

// ParseFolderFile reads the folder file at p, whose blob is hash. A fault ends
// up in Err as a *FolderFileError.
func ParseFolderFile(p, hash string, data []byte) FolderMeta {
	m, err := parseFolderFile(data)
	if err != nil {
		m = FolderMeta{Err: &FolderFileError{Path: p, Err: err}}
	}
	m.Hash = hash
	return m
}

func parseFolderFile(data []byte) (FolderMeta, error) {
	doc, err := decode(repopath.FolderFile, data)
	if err != nil {
		return FolderMeta{}, err
	}
	var folder struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			Title string `json:"title"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(doc, &folder); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return FolderMeta{}, fmt.Errorf("%s is a %s", wrong.Field, wrong.Value)
		}
		return FolderMeta{}, err
	}
	if folder.Kind != "" && folder.Kind != folderKind {
		return FolderMeta{}, fmt.Errorf("kind is %q, not %s", folder.Kind, folderKind)
	}
	if err := checkName("metadata.name", folder.Metadata.Name); err != nil {
		return FolderMeta{}, err
	}
	if n := len(folder.Metadata.Name); n > MaxUID {
		return FolderMeta{}, fmt.Errorf("metadata.name has %d bytes, a folder UID has at most %d", n, MaxUID)
	}
	return FolderMeta{UID: folder.Metadata.Name, Title: folder.Spec.Title}, nil
}
