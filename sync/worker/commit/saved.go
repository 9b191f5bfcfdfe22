package commit

import (
	"limpet/sync/api"
	"limpet/sync/resources"
)

// Saved is the state of the write of a job. It is saved with the resume mark.
type Saved struct {
	When     int64     `json:"when"`               // of the commit, in seconds
	Paths    []string  `json:"paths"`              // that the job selects, those of resources included
	Commits  []string  `json:"commits,omitempty"`  // that may have been pushed
	Warnings []Warning `json:"warnings,omitempty"` // about the changes
	Ended    bool      `json:"ended,omitempty"`    // nothing is left to push
	Hash     string    `json:"hash,omitempty"`     // of the commit in the branch; "" = there was nothing to commit
	Own      string    `json:"own,omitempty"`      // branch of the Repository
	// Objects are the objects in the commits of a migration, by hash.
	Objects map[string][]Exported `json:"objects,omitempty"`
}

// Warning is a result with a warning in a form that can be saved.
type Warning struct {
	resources.Result
	Text string
}

// Exported is an object that is in the commit. It is kept with its version: one that has been
// changed since is neither overwritten nor deleted.
type Exported struct {
	Kind    string `json:"k"`
	Name    string `json:"n"`
	Version string `json:"v"` // its resourceVersion
}

// mark is the resume mark of a job that writes to Git.
type mark struct {
	Staged *Saved `json:"staged,omitempty"`
}

// Identity returns the identity of the object.
func (e Exported) Identity() resources.Identity {
	if e.Kind == "Folder" {
		return resources.Identity{Group: api.FolderGroup, Kind: e.Kind, Name: e.Name}
	}
	return resources.Identity{Group: api.DashboardGroup, Kind: e.Kind, Name: e.Name}
}

// Selected returns the paths whose objects may be deleted without more consent.
func (s *Saved) Selected() []string {
	if s == nil {
		return nil
	}
	return s.Paths
}

// Exported returns the objects in the commit of the branch.
func (s *Saved) Exported() []Exported {
	if s == nil {
		return nil
	}
	return s.Objects[s.Hash]
}

// TakeOver returns the objects that a pull takes over, with their resource versions. A folder may
// have changed: its file has all that is synced of it.
func (s *Saved) TakeOver() map[resources.Identity]string {
	out := map[resources.Identity]string{}
	for _, e := range s.Exported() {
		if out[e.Identity()] = e.Version; e.Kind == "Folder" {
			out[e.Identity()] = ""
		}
	}
	return out
}

// holds records the exported objects in a commit. More than one commit may be on its way to the
// host.
func (s *Saved) holds(hash string, objects []Exported) {
	if len(objects) > 0 {
		if s.Objects == nil {
			s.Objects = map[string][]Exported{}
		}
		s.Objects[hash] = objects
	}
}
