package jobs

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// Priorities of jobs, in the annotation limpet/priority of the Job or, for all
// its jobs, of the Repository.
const (
	ordinary = 5  // of a job that says nothing
	highest  = 9  // most urgent
	unranked = -1 // the priority is not known, or stays as it is
)

// readPriority reads the annotation of a Job or Repository. ok is false when
// there is none; an error says that it is none of 0 to 9.
func readPriority(u *unstructured.Unstructured) (priority int, ok bool, err error) {
	text, ok := u.GetAnnotations()[api.AnnoPriority]
	switch {
	case !ok:
		return ordinary, false, nil
	case len(text) == 1 && text[0] >= '0' && text[0] <= '0'+highest:
		return int(text[0] - '0'), true, nil
	}
	return ordinary, false, fmt.Errorf("annotation %s is %q: it must be a number from 0 to %d", api.AnnoPriority, clip(text, 20), highest)
}

// priorityOf is the priority of a job: its own, else that of its repository as
// the watch has it, else the ordinary one. A value that is not valid counts as
// none and is told once.
func (c *Controller) priorityOf(job *unstructured.Unstructured) int {
	p, ok, err := readPriority(job)
	if err != nil {
		a := aboutOf(job)
		c.once("priority "+a.uid, EventNote, a, err.Error()+"; the job has the priority of its repository")
	}
	if ok {
		return p
	}
	l := laneOf(job)
	repo, known := c.repos.Get(l.Namespace, l.Repository)
	if !known {
		return ordinary
	}
	p, _, err = readPriority(repo)
	if err != nil {
		c.once("priority "+string(repo.GetUID()), EventNote, about{repository: l.Repository}, "repository "+l.Repository+": "+err.Error()+fmt.Sprintf("; its jobs have priority %d", ordinary))
	}
	return p
}
