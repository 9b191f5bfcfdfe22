package resources

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/api"
	"limpet/sync/api/repopath"
)

// grantDefault asks the server to give a folder at the root the permissions that every new folder there gets.
const grantDefault = "default"

// writeFolder makes sure of one folder.
func (r *run) writeFolder(ctx context.Context, c *Change) {
	item, cancel := r.item(ctx)
	defer cancel()
	id := Identity{Group: api.FolderGroup, Kind: folderKind, Name: c.Folder.ID}
	if dir, is := r.missingFolder(repopath.Parent(c.Path)); is {
		r.record(ctx, item, c, id, Ignored, errNoFolder(dir))
		return
	}
	done, err := r.putFolder(item, c, id)
	if err != nil {
		r.mu.Lock()
		r.broken[c.Path] = true
		if c.Path == "" && ctx.Err() == nil {
			r.fatal = fmt.Errorf("create root folder: %w", err)
		}
		r.mu.Unlock()
	}
	r.record(ctx, item, c, id, done, err)
}

// putFolder makes the folder of the server what c wants and says what it did.
func (r *run) putFolder(ctx context.Context, c *Change, id Identity) (Action, error) {
	ref := Ref{Group: api.FolderGroup, Resource: FolderResource, Name: c.Folder.ID}
	_, takes := r.plan.target.TakeOver[id]
	exists := takes || c.Existing != nil
	var err error
	for range conflicts {
		if !exists {
			err = r.create(ctx, ref, c.Path, false, func(version string) []byte { return r.newFolder(version, c) })
			if !apierrors.IsAlreadyExists(err) {
				return Created, err
			}
		}
		var old *Live
		if old, err = r.Server.Get(ctx, ref, true); apierrors.IsNotFound(err) {
			exists = false
			continue
		} else if err != nil {
			return c.Action, err
		}
		if err = r.plan.target.checkOwner(checkManaged(r.plan.target.Repository, id, old.Annotations), id, old); err != nil {
			return c.Action, err
		}
		var body []byte
		var changed bool
		if body, changed, err = r.changedFolder(old, c); err != nil {
			return c.Action, err
		}
		if !changed {
			return Ignored, nil
		}
		err = r.Server.Update(ctx, ref, false, func(string) []byte { return body })
		if err == nil && takes && c.Existing == nil {
			r.tookOver(ref)
		}
		if !apierrors.IsConflict(err) {
			return written(c, Updated), err
		}
		exists = true
	}
	return c.Action, err
}

func (r *run) stamp(path, hash, folder string) Stamp {
	if _, there := r.plan.live[Identity{Group: api.FolderGroup, Kind: folderKind, Name: folder}]; r.DryRun && !there {
		folder = ""
	}
	return Stamp{Namespace: r.Namespace, Repository: r.plan.target.Repository, Path: path, Checksum: hash, Folder: folder}
}

func errNoFolder(dir string) error {
	return &SkippedError{Reason: "not written, because the folder of " + dir + " could not be made"}
}

func (r *run) newFolder(version string, c *Change) []byte {
	annotations := r.stamp(c.Path, c.Folder.Hash, c.Folder.Parent).annotations()
	if c.Folder.Parent == "" {
		annotations[api.AnnoGrantPermissions] = grantDefault
	}
	return marshal(map[string]any{
		"apiVersion": api.FolderGroup + "/" + version,
		"kind":       folderKind,
		"metadata":   map[string]any{"name": c.Folder.ID, "namespace": r.Namespace, "annotations": annotations},
		"spec":       map[string]any{"title": c.Folder.Title},
	})
}

// changedFolder returns the folder of the server with what c wants, and whether
// that is another one. All that is not the sync's stays.
func (r *run) changedFolder(old *Live, c *Change) ([]byte, bool, error) {
	var object map[string]any
	dec := json.NewDecoder(bytes.NewReader(old.Raw))
	dec.UseNumber()
	if err := dec.Decode(&object); err != nil {
		return nil, false, fmt.Errorf("read folder %s: %w", old.Name, err)
	}
	meta := child(object, "metadata")
	annotations := child(meta, "annotations")
	changed := set(child(object, "spec"), "title", c.Folder.Title)
	want := r.stamp(c.Path, c.Folder.Hash, c.Folder.Parent).annotations()
	for _, key := range []string{api.AnnoManagedBy, api.AnnoManagerID, api.AnnoSourcePath, api.AnnoSourceChecksum, api.AnnoFolder} {
		if set(annotations, key, want[key]) {
			changed = true
		}
	}
	delete(meta, "managedFields")
	return marshal(object), changed, nil
}

// child returns the object at key, which it makes when there is none.
func child(object map[string]any, key string) map[string]any {
	c, ok := object[key].(map[string]any)
	if !ok {
		c = map[string]any{}
		object[key] = c
	}
	return c
}

// set sets key to value, or removes it for "", and reports whether that changed anything.
func set(object map[string]any, key, value string) bool {
	if old, _ := object[key].(string); old == value {
		return false
	}
	if object[key] = value; value == "" {
		delete(object, key)
	}
	return true
}
