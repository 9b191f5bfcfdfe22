package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"limpet/sync/api"
)

// Values of state.Record.HistoricJob.
const (
	posted      = "posted"      // there is a HistoricJob, by this agent or by one that did the job again
	unavailable = "unavailable" // the server keeps none: it writes its history elsewhere
	skipped     = "skipped"     // none was made, because the job was no longer ours or the server refused it
)

// archiveRest is how long a server is not asked again after it has said that it
// keeps no HistoricJobs.
const archiveRest = 10 * time.Minute

// historicTries is how often a server is asked that answers with an error of
// its own. History must not keep a finished job in the queue for ever; the
// local record is there in any case.
const historicTries = 8

const annoLastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// historicJob makes the HistoricJob of a job from its last state.
func historicJob(job *unstructured.Unstructured, a about, status map[string]any) *unstructured.Unstructured {
	l := map[string]string{}
	for name, value := range job.GetLabels() {
		if name != api.LabelClaim && name != api.LabelClaimOwner {
			l[name] = value
		}
	}
	l[api.LabelOriginalUID] = a.uid
	if len(validation.IsValidLabelValue(a.repository)) == 0 {
		l[api.LabelRepository] = a.repository
	}
	out := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	if spec, ok := job.Object["spec"].(map[string]any); ok {
		out.Object["spec"] = spec
	}
	out.SetAPIVersion(api.HistoricJobs.GroupVersion().String())
	out.SetKind("HistoricJob")
	out.SetNamespace(a.Namespace)
	out.SetName(historicName(a))
	out.SetLabels(l)
	notes := job.GetAnnotations()
	delete(notes, annoLastApplied)
	if len(notes) > 0 {
		out.SetAnnotations(notes)
	}
	return out.DeepCopy()
}

// historicName is the same for every try to archive one job, and no other job
// has it. A request may arrive long after its sender has given it up or has gone
// to sleep; the name is what keeps it from making a second HistoricJob, with
// which readers find none of the two.
func historicName(a about) string {
	sum := sha256.Sum256([]byte(a.uid))
	tail := "-" + hex.EncodeToString(sum[:8])
	name := a.Name[:min(len(a.Name), validation.DNS1123SubdomainMaxLength-len(tail))]
	return strings.TrimRight(name, "-.") + tail
}

// archiveJob makes the HistoricJob, at most one per UID. lookFirst says that an
// earlier run may have made it already. The result is a value of
// state.Record.HistoricJob; the error is one that another try may overcome.
func (c *Controller) archiveJob(ctx context.Context, h *held, status map[string]any, lookFirst bool) (string, error) {
	if c.archiveResting() {
		return unavailable, nil
	}
	if lookFirst {
		found, err := c.server.archived(ctx, h.Namespace, h.uid)
		if result, done := c.archiveAnswer(err, h); done {
			return result, nil
		}
		if err != nil {
			return "", err
		}
		if found {
			return posted, nil
		}
	}
	job, err := h.writable(ctx)
	if err != nil {
		return "", err
	}
	err = c.server.archive(ctx, historicJob(job, h.about, status))
	if err == nil || apierrors.IsAlreadyExists(err) {
		return posted, nil
	}
	if result, done := c.archiveAnswer(err, h); done {
		return result, nil
	}
	return "", err
}

// answered says that an error is an answer of the server, not of the network.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// archiveAnswer settles the answers after which it is no use to try again.
func (c *Controller) archiveAnswer(err error, h *held) (result string, done bool) {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		c.restArchive()
		c.once("historicjobs", EventNote, about{}, "the server keeps no HistoricJobs ("+string(apierrors.ReasonForError(err))+"); history is kept in the state file only")
		return unavailable, true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		c.tell(EventNote, h.about, "the server refused the HistoricJob: "+err.Error())
		return skipped, true
	}
	return "", false
}

func (c *Controller) archiveResting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.noArchiveUntil)
}

func (c *Controller) restArchive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noArchiveUntil = time.Now().Add(archiveRest)
}
