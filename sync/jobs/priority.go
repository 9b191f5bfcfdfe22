package jobs

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
)

// Priorities of jobs, in the annotation limpet/priority of the Job or, for all
// its jobs, of the Repository.
const (
	ordinary = 5  // of a job that says nothing
	highest  = 9  // most urgent
	unranked = -1 // the priority is not known, or stays as it is
)

// readPriority reads the value of the annotation. ok is false when there is none;
// an error says that it is none of 0 to 9.
func readPriority(text string) (priority int, ok bool, err error) {
	switch {
	case text == "":
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
	return c.priority(api.Annotation(job, api.AnnoPriority), laneOf(job), func() about { return aboutOf(job) })
}

// priorityOfSight is the same for a job as the watch keeps it.
func (c *Controller) priorityOfSight(job kube.Object) int {
	return c.priority(job.Text(pathPriority), laneOfSight(job), func() about { return aboutOf(job.Unstructured()) })
}

func (c *Controller) priority(text string, l lane, of func() about) int {
	p, ok, err := readPriority(text)
	if err != nil {
		a := of()
		c.once("priority "+a.uid, EventNote, a, err.Error()+"; the job has the priority of its repository")
	}
	if ok {
		return p
	}
	repo, known := c.repos.Get(l.Namespace, l.Repository)
	if !known {
		return ordinary
	}
	p, _, err = readPriority(api.Annotation(repo, api.AnnoPriority))
	if err != nil {
		c.once("priority "+string(repo.GetUID()), EventNote, about{repository: l.Repository}, fmt.Sprintf("repository %s: %s; its jobs have priority %d", l.Repository, err, ordinary))
	}
	return p
}
