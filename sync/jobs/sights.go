package jobs

import "limpet/sync/api"

// What the picture of the watch tells of a job without making an object of it.
var (
	pathClaim      = api.PathTo("metadata", "labels", api.LabelClaim)
	pathClaimOwner = api.PathTo("metadata", "labels", api.LabelClaimOwner)
	pathRepository = api.PathTo("spec", "repository")
	pathPriority   = api.PathTo("metadata", "annotations", api.AnnoPriority)
	pathAction     = api.PathTo("spec", "action")
	pathNotBefore  = api.PathTo("metadata", "annotations", api.AnnoNotBefore)
)

// claimedSight is claimed for a sight.
func claimedSight(job api.Sight) bool {
	return job.Text(pathClaim) != "" || job.Text(pathClaimOwner) != ""
}

func keyOfSight(job api.Sight) key { return key{job.Namespace(), job.Name()} }

func laneOfSight(job api.Sight) lane { return lane{job.Namespace(), job.Text(pathRepository)} }
