package testenv

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// lfsPath is where Git LFS begins below a repository. What is there is a fake that
// speaks the batch format of git-lfs docs/api/batch.md: Debian has no server of it.
const lfsPath = "/info/lfs/"

// KeepLFS has the server keep a content for all its repositories, and returns the
// pointer to commit in its place.
func (g *GitServer) KeepLFS(content string) (pointer string) {
	sum := sha256.Sum256([]byte(content))
	oid := hex.EncodeToString(sum[:])
	g.mu.Lock()
	defer g.mu.Unlock()
	g.large[oid] = content
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", oid, len(content))
}

// LoseLFS has the server forget all that it keeps in Git LFS.
func (g *GitServer) LoseLFS() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.large)
}

// serveLFS returns the batch API, and gives out what it names.
func (g *GitServer) serveLFS(w http.ResponseWriter, r *http.Request, path string) {
	_, rest, _ := strings.Cut(r.URL.Path, lfsPath)
	if oid, ok := strings.CutPrefix(rest, "store/"); ok && r.Method == http.MethodGet {
		content, kept := g.kept(oid)
		if !kept {
			http.NotFound(w, r)
			return
		}
		g.count(func(c *GitCounts) { c.LFSGets++ })
		io.WriteString(w, content)
		return
	}
	type object struct {
		OID     string         `json:"oid"`
		Size    int64          `json:"size"`
		Actions map[string]any `json:"actions,omitempty"`
		Error   map[string]any `json:"error,omitempty"`
	}
	var question struct {
		Operation string
		Objects   []object
	}
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil || rest != "objects/batch" || question.Operation != "download" {
		http.Error(w, "not a request for a download", http.StatusUnprocessableEntity)
		return
	}
	g.count(func(c *GitCounts) { c.LFSBatches++ })
	for i := range question.Objects {
		o := &question.Objects[i]
		if _, kept := g.kept(o.OID); kept {
			o.Actions = map[string]any{"download": map[string]any{"href": g.URL + "/" + path + lfsPath + "store/" + o.OID, "expires_in": 60}}
		} else {
			o.Error = map[string]any{"code": http.StatusNotFound, "message": "Object does not exist"}
		}
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": question.Objects})
}

func (g *GitServer) kept(oid string) (string, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	content, ok := g.large[oid]
	return content, ok
}
