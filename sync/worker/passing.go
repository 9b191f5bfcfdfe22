package worker

import (
	"errors"

	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/jobs"
)

// passing tells an error that may be over by the next attempt from one that
// only a person can end. It is asked about the Git side: what the API says is
// judged where the API is asked.
//
//	unreachable   no route, name unknown, refused, broken off, 5xx, a portal in its place
//	throttled     429
//	timeout       silent for too long
//	moved         the branch was faster than its fetches
//	overtaken     the branch was faster than its pushes
//
// Certificates that do not hold count as unreachable: a clock that is wrong
// after boot and a captive portal are more frequent at a site than a wrong one.
//
// The same holds for the host of a Connection, which is asked for a token.
func passing(err error) error {
	if e, ok := errors.AsType[*forge.Error](err); ok {
		switch e.Kind {
		case forge.Unavailable, forge.RateLimited, forge.Protocol:
			return &jobs.TransientError{Err: err, After: e.RetryAfter}
		}
		return err
	}
	e, ok := errors.AsType[*git.Error](err)
	if !ok {
		return err
	}
	switch e.Kind {
	case git.Unreachable, git.Throttled, git.Timeout, git.Moved, git.Overtaken:
		return &jobs.TransientError{Err: err, After: e.RetryAfter}
	}
	return err
}
