package jobs

import (
	"limpet/sync/api"
	"limpet/sync/kube"
)

// What the picture of the watch tells of a job without making an object of it.
var (
	pathClaim      = kube.PathTo("metadata", "labels", api.LabelClaim)
	pathClaimOwner = kube.PathTo("metadata", "labels", api.LabelClaimOwner)
	pathRepository = kube.PathTo("spec", "repository")
	pathPriority   = kube.PathTo("metadata", "annotations", api.AnnoPriority)
	pathAction     = kube.PathTo("spec", "action")
	pathNotBefore  = kube.PathTo("metadata", "annotations", api.AnnoNotBefore)
)

// claimedSight is claimed for a sight.
func claimedSight(job kube.Object) bool {
	return job.Text(pathClaim) != "" || job.Text(pathClaimOwner) != ""
}

func keyOfSight(job kube.Object) key { return key{job.Namespace(), job.Name()} }

func laneOfSight(job kube.Object) lane { return lane{job.Namespace(), job.Text(pathRepository)} }
