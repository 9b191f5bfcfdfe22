// Package failpoint names the places in the life of a job where tests stop the process.
//
// In a binary that is built with the tag failpoints, the variable
//
//	LIMPET_FAILPOINTS="claimed=kill@3,marked=stall"
//
// kills the process with SIGKILL when a job has been claimed for the third time, and lets the
// goroutine that marks progress for the first time wait for ever. What can be done: kill; exit
// (with code 99, without any cleaning up); stall; error (Pass returns one, once). Without the tag
// there is nothing: Pass is empty and the variable is not read.
package failpoint

// The points, in the order in which a job passes them.
const (
	Seen      = "seen"      // a driver has read a job that nobody holds and may be for it
	Intent    = "intent"    // the intent to claim is kept
	Claimed   = "claimed"   // the API has the claim
	Confirmed = "confirmed" // the claim is kept as held
	Working   = "working"   // the worker is about to be called
	Fetched   = "fetched"   // the commit is in the mirror
	Verified  = "verified"  // the commit is signed as it has to be, where anybody asks for that
	Composed  = "composed"  // a commit is made in memory, nothing is noted of it
	Noted     = "noted"     // which commit is about to be pushed is noted
	Written   = "written"   // a file of a directory that is pushed to is written, moved or deleted
	Pushed    = "pushed"    // the host has the commit
	Published = "published" // that it has is noted; a pull may follow
	Planned   = "planned"   // the changes are known, none is made
	Applying  = "applying"  // an object has been written
	Marked    = "marked"    // a progress mark is kept
	Worked    = "worked"    // the worker has returned
	Recorded  = "recorded"  // the result is kept
	Posted    = "posted"    // the HistoricJob is there
	Deleted   = "deleted"   // the Job is gone
	Ended     = "ended"     // the claim is forgotten
	Released  = "released"  // a job has been given back to the queue
	Requeued  = "requeued"  // the expired claim of another agent is off its job
	Switched  = "switched"  // a sink directory is switched, the program that follows has not run
)

// Points are all of them.
var Points = []string{Seen, Intent, Claimed, Confirmed, Working, Fetched, Verified, Composed, Noted, Written, Pushed, Published, Planned,
	Applying, Marked, Worked, Recorded, Posted, Deleted, Ended, Released, Requeued, Switched}
