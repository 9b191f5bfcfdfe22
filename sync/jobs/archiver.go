package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"limpet/sync/api"
)

// Values of state.Record.HistoricJob.
const (
	archivePosted      = "posted"      // there is a HistoricJob, by this agent or by one that did the job again
	archiveUnavailable = "unavailable" // the server keeps none: it writes its history elsewhere
	archiveSkipped     = "skipped"     // none was made, because the job was no longer ours or the server refused it
)

const (
	// archivePause is how long a server is not asked again after it has answered that
	// it keeps no HistoricJobs.
	archivePause = 10 * time.Minute
	// archiveTries is how often a server is asked that answers with an error of its
	// own. History must not keep a finished job in the queue for ever; the local
	// record is there in any case.
	archiveTries = 8
)

const annoLastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// archiver makes HistoricJobs.
type archiver struct {
	*env

	mu         sync.Mutex // guards pauseUntil
	pauseUntil time.Time  // the server keeps no HistoricJobs
}

// archive makes the HistoricJob of a held job, at most one per UID. lookFirst
// reports that an earlier request may have made it already. The result is a value of
// state.Record.HistoricJob; the error is one that another try may overcome.
func (a *archiver) archive(ctx context.Context, h *heldJob, status map[string]any, lookFirst bool) (string, error) {
	if a.unavailableNow() {
		return archiveUnavailable, nil
	}
	if lookFirst {
		found, err := a.server.archived(ctx, h.Namespace, h.uid)
		switch result, final := a.finalAnswer(err, h); {
		case final:
			return result, nil
		case err != nil:
			return "", err
		case found:
			return archivePosted, nil
		}
	}
	job, err := h.writable(ctx)
	if err != nil {
		return "", err
	}
	err = a.server.archive(ctx, historicJob(job, h.jobRef, status))
	if err == nil || apierrors.IsAlreadyExists(err) {
		return archivePosted, nil
	}
	if result, final := a.finalAnswer(err, h); final {
		return result, nil
	}
	return "", err
}

// finalAnswer returns the result of an answer after which another try is in vain.
func (a *archiver) finalAnswer(err error, h *heldJob) (result string, final bool) {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		a.mu.Lock()
		a.pauseUntil = time.Now().Add(archivePause)
		a.mu.Unlock()
		a.events.once("historicjobs", EventNote, jobRef{},
			"the server keeps no HistoricJobs ("+string(apierrors.ReasonForError(err))+"); history is kept in the state file only")
		return archiveUnavailable, true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		a.events.emit(EventNote, h.jobRef, "the server refused the HistoricJob: "+err.Error())
		return archiveSkipped, true
	}
	return "", false
}

// unavailableNow reports whether the server has answered lately that it keeps no
// HistoricJobs.
func (a *archiver) unavailableNow() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.pauseUntil)
}

// answered reports whether an error is an answer of the server, not of the network.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// historicJob makes the HistoricJob of a job from its last state.
func historicJob(job *unstructured.Unstructured, ref jobRef, status map[string]any) *unstructured.Unstructured {
	l := map[string]string{}
	for name, value := range job.GetLabels() {
		if name != api.LabelClaim && name != api.LabelClaimOwner {
			l[name] = value
		}
	}
	l[api.LabelOriginalUID] = ref.uid
	if len(validation.IsValidLabelValue(ref.repository)) == 0 {
		l[api.LabelRepository] = ref.repository
	}
	out := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	if spec, ok := job.Object["spec"].(map[string]any); ok {
		out.Object["spec"] = spec
	}
	out.SetAPIVersion(api.HistoricJobs.GroupVersion().String())
	out.SetKind("HistoricJob")
	out.SetNamespace(ref.Namespace)
	out.SetName(historicName(ref))
	out.SetLabels(l)
	annotations := job.GetAnnotations()
	delete(annotations, annoLastApplied)
	if len(annotations) > 0 {
		out.SetAnnotations(annotations)
	}
	return out.DeepCopy()
}

// historicName is the same for every try to archive one job, and no other job
// has it. A request may arrive long after its sender has given it up or has gone
// to sleep; the name is what keeps it from making a second HistoricJob, with
// which readers find none of the two.
func historicName(ref jobRef) string {
	sum := sha256.Sum256([]byte(ref.uid))
	tail := "-" + hex.EncodeToString(sum[:8])
	name := ref.Name[:min(len(ref.Name), validation.DNS1123SubdomainMaxLength-len(tail))]
	return strings.TrimRight(name, "-.") + tail
}
