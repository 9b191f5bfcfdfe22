package jobs

import (
	"context"
	"log/slog"
	"time"
)

// Types of Event.
const (
	EventLeft      = "left"      // seen and left alone; Text says why
	EventClaimed   = "claimed"   //
	EventResumed   = "resumed"   // an own claim of before was taken up again
	EventProgress  = "progress"  // message or total of the job have changed
	EventApplied   = "applied"   // a resource was written or deleted
	EventRejected  = "rejected"  // a resource was not written: error or warning
	EventRenewed   = "renewed"   //
	EventRenewal   = "renewal"   // a renewal did not succeed; it is tried again
	EventLost      = "lost"      // the lease is lost, nothing more is written
	EventCancelled = "cancelled" // the job was told to stop
	EventReleased  = "released"  // given back to the queue
	EventPostponed = "postponed" // given back for another attempt: something is in the way that passes
	EventCompleted = "completed" // in history and gone from the queue
	EventDead      = "dead"      // comes before completed: the attempts are used up, State says by what
	EventWaiting   = "waiting"   // the result is kept and sent when the API is back
	EventRequeued  = "requeued"  // the expired claim of another agent was removed
	EventFailed    = "failed"    // the job of an expired claim was ended as error
	EventDrain     = "drain"     // the agent claims nothing new, has nothing left to do, or claims again
	EventPruned    = "pruned"    // history was pruned
	EventNote      = "note"      // anything else a person may want to know, said once
)

// Event is one step in the life of a job, for the dashboard, the log and the
// streams. Job fields are empty where the event is about none.
type Event struct {
	At         time.Time `json:"at"`
	Type       string    `json:"type"`
	Level      string    `json:"level"` // debug, info, warn, error
	Namespace  string    `json:"namespace,omitempty"`
	Job        string    `json:"job,omitempty"`
	UID        string    `json:"uid,omitempty"`
	Repository string    `json:"repository,omitempty"`
	Action     string    `json:"action,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	State      string    `json:"state,omitempty"` // of a completed job
	Text       string    `json:"text"`
	// Last is how a completed job looked at its end, with its whole log; nil
	// when this agent did not hold it.
	Last *Running `json:"-"`
}

// about is the part of an Event that names a job.
type about struct {
	key
	uid, repository, action string
	attempt                 int
}

// levels gives the level of each type of event that is not info.
var levels = map[string]string{
	EventApplied: "debug", EventRenewed: "debug", EventProgress: "debug", EventLeft: "debug",
	EventRejected: "warn", EventRenewal: "warn", EventLost: "warn", EventCancelled: "warn",
	EventWaiting: "warn", EventRequeued: "warn", EventFailed: "warn", EventNote: "warn",
	EventPostponed: "warn",
}

var slogLevels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

// tell logs an event and gives it to the observer.
func (c *Controller) tell(typ string, a about, text string) {
	c.tellState(typ, a, "", text)
}

func (c *Controller) tellState(typ string, a about, state, text string) {
	e := Event{At: time.Now(), Type: typ, Level: levels[typ], Namespace: a.Namespace, Job: a.Name, UID: a.uid,
		Repository: a.repository, Action: a.action, Attempt: a.attempt, State: state, Text: text}
	switch {
	case typ == EventDead || state == "error" || state == stateDead:
		e.Level = "error"
	case state == "warning" || state == stateCancelled: // what a person wanted is no trouble
		e.Level = "warn"
	case e.Level == "":
		e.Level = "info"
	}
	attrs := make([]slog.Attr, 0, 6)
	attrs = append(attrs, slog.String("step", typ))
	if a.Name != "" {
		attrs = append(attrs, slog.String("job", a.String()), slog.String("uid", a.uid),
			slog.String("repo", a.repository), slog.Int("attempt", a.attempt))
	}
	if state != "" {
		attrs = append(attrs, slog.String("state", state))
	}
	c.log.LogAttrs(context.Background(), slogLevels[e.Level], text, attrs...)
	c.live.line(a.uid, e.At, e.Level, text)
	if h := c.heldJob(a.uid); h != nil && typ == EventCompleted {
		last := c.look(h)
		last.Job = h.last()
		e.Last = &last
	}
	if c.o.Observe != nil {
		c.o.Observe(e)
	}
}

// once tells an event only the first time that id occurs. It forgets all ids
// when there are too many, so at worst a line is repeated.
func (c *Controller) once(id, typ string, a about, text string) {
	c.mu.Lock()
	if len(c.told) >= toldLimit {
		clear(c.told)
	}
	_, known := c.told[id]
	c.told[id] = struct{}{}
	c.mu.Unlock()
	if !known {
		c.tell(typ, a, text)
	}
}

// toldLimit bounds the memory of what was told once.
const toldLimit = 4096
