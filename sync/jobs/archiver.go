package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"limpet/sync/api"
)

const annoLastApplied = "kubectl.kubernetes.io/last-applied-configuration"

type archiver struct {
	env        *env
	pauseUntil atomic.Pointer[time.Time] // the server keeps no HistoricJobs
}

// archive makes the HistoricJob of a held job, at most one per UID. lookFirst reports that an
// earlier request may have made it already. The result is a value of state.Record.HistoricJob; the
// error is one that another try may overcome.
func (a *archiver) archive(ctx context.Context, h *heldJob, status map[string]any, lookFirst bool) (string, error) {
	if until := a.pauseUntil.Load(); until != nil && time.Now().Before(*until) {
		return archiveUnavailable, nil
	}
	found, err := false, error(nil)
	if lookFirst {
		found, err = a.env.archived(ctx, h.ref.Namespace, h.ref.uid)
	}
	if !found && err == nil {
		var historic *unstructured.Unstructured
		err = h.inTurn(ctx, func() error {
			historic = historicJob(h.job, h.ref, status)
			return nil
		})
		if err != nil {
			return "", err
		}
		err = a.env.server.archive(ctx, historic)
	}
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return archivePosted, nil
	case refused(err):
		until := time.Now().Add(archivePause)
		a.pauseUntil.Store(&until)
		a.env.events.once("historicjobs", EventNote, jobRef{},
			"the server keeps no HistoricJobs ("+string(apierrors.ReasonForError(err))+"); history is kept in the state file only")
		return archiveUnavailable, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		a.env.events.emit(EventNote, h.ref, "the server refused the HistoricJob: "+err.Error())
		return archiveSkipped, nil
	}
	return "", err
}

// historicJob makes the HistoricJob of a job from its last state.
func historicJob(job *unstructured.Unstructured, ref jobRef, status map[string]any) *unstructured.Unstructured {
	l := map[string]string{}
	maps.Copy(l, job.GetLabels())
	delete(l, api.LabelClaim)
	delete(l, api.LabelClaimOwner)
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

// historicName is the same for every try to archive one job, and no other job has it: a request
// that arrives late makes no second HistoricJob.
func historicName(ref jobRef) string {
	sum := sha256.Sum256([]byte(ref.uid))
	tail := "-" + hex.EncodeToString(sum[:8])
	name := ref.Name[:min(len(ref.Name), validation.DNS1123SubdomainMaxLength-len(tail))]
	return strings.TrimRight(name, "-.") + tail
}

// Values of state.Record.HistoricJob.
const (
	archivePosted      = "posted"      // there is a HistoricJob, by this agent or by one that did the job again
	archiveUnavailable = "unavailable" // the server keeps none: it writes its history elsewhere
	archiveSkipped     = "skipped"     // none was made, because the job was no longer ours or the server refused it
)

const (
	// archivePause is how long a server is not asked again after it has answered that it keeps no
	// HistoricJobs.
	archivePause = 10 * time.Minute
	// archiveTries is how often a server is asked that answers with an error of its own. History must
	// not keep a finished job in the queue for ever; the local record is there in any case.
	archiveTries = 8
)
