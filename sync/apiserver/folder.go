package apiserver

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/api"
)

// A folder in which something is may not be deleted: what it holds would be nowhere.
// Source: Grafana's folder API, which refuses it in these words, without the names,
// and gives way to a grace period of 0 (kubectl delete --force).

// mostNamed is how many objects a refusal names, and scanned how many are read at a time
// to find them.
const (
	mostNamed = 5
	scanned   = 200
)

func isFolder(k api.Kind) bool { return k.Group == api.FolderGroup && k.Kind == "Folder" }

// inFolders says that objects of a kind lie in folders.
func inFolders(k api.Kind) bool { return isFolder(k) || k.Group == api.DashboardGroup }

// checkEmpty refuses the deletion of a folder that is not empty.
func (s *Server) checkEmpty(ctx context.Context, r *admitRequest) error {
	if !isFolder(r.Kind) || r.Force {
		return nil
	}
	var in []string
	for _, k := range api.Kinds {
		if !inFolders(k) || len(in) > mostNamed {
			continue
		}
		found, err := s.inFolder(ctx, k, r.Namespace, r.Name, mostNamed+1-len(in))
		if err != nil {
			return err
		}
		in = append(in, found...)
	}
	if len(in) == 0 {
		return nil
	}
	more := ""
	if len(in) > mostNamed {
		in, more = in[:mostNamed], " and others"
	}
	return apierrors.NewBadRequest(fmt.Sprintf("Folder cannot be deleted: folder is not empty: %s%s in it", strings.Join(in, ", "), more))
}

// inFolder names up to most objects of one kind that lie in a folder.
func (s *Server) inFolder(ctx context.Context, k api.Kind, namespace, folder string, most int) (names []string, err error) {
	q := state.ObjectQuery{Resource: resourceName(k), Namespace: namespace, Limit: scanned}
	for {
		page, err := s.store.Objects(ctx, q)
		if err != nil {
			return nil, s.asStatus(ctx, err)
		}
		for _, item := range page.Items {
			// The name of a folder has no character that JSON escapes.
			if at := find(item.Data, "metadata", "annotations", api.AnnoFolder); at.found() && string(at.of(item.Data)) == `"`+folder+`"` {
				names = append(names, strings.ToLower(k.Kind)+"/"+item.Key.Name)
				if len(names) == most {
					return names, nil
				}
			}
		}
		if page.Next == "" {
			return names, nil
		}
		q.After = page.Next
	}
}
