package worker

import (
	"errors"

	"limpet/sync/forge"
	"limpet/sync/git"
	"limpet/sync/jobs"
)

// passing wraps a transient error of a Git host in a *jobs.TransientError and
// returns any other error unchanged. Errors of the API are classified where the
// API is called.
//
//	unreachable   no route, unknown name, connection refused or reset, 5xx, captive portal
//	throttled     429
//	timeout       no response in time
//	moved         the branch moved during each fetch
//	overtaken     the branch moved before each push
//
// Invalid certificates count as unreachable: a wrong clock after boot and a
// captive portal are more frequent at a site than a wrong certificate.
//
// Errors of the host of a Connection, which creates tokens, are classified alike.
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
