package repos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"limpet/sync/api"
)

// A Repository whose host is unreachable and which a mirror answers for is in order:
// it can be pulled. Its health says in words who serves it and why, and so does an
// event when that begins and when it ends. Nothing is written to a mirror, or decided
// by it: no push is asked for, no webhook made, no default branch taken over.

// errAway is why a host is not asked for more.
var errAway = errors.New("it is unreachable, a mirror answers in its place")

// mirrored says that a mirror has answered.
func (p *probe) mirrored() bool { return p.ref.Via.URL != "" }

// mirrorTold are the words about a mirror in a health, "" for none. Those of others are
// no business of ours.
func mirrorTold(h api.HealthState) string {
	for _, text := range h.Message {
		if h.Healthy && strings.Contains(text, "from mirror ") {
			return text
		}
	}
	return ""
}

// mirrorNews says that the status tells something else about the mirrors than what a
// look has shown.
func (r *reconciling) mirrorNews(look finding) bool {
	h := r.facts.repo.Status.Health
	return h.Checked > 0 && h.Healthy && look.mirror != mirrorTold(h)
}

// reportMirror tells a person who answers now. It says whether there was news.
func (r *reconciling) reportMirror(before api.HealthState, found finding) bool {
	told := mirrorTold(before)
	switch {
	case found.mirror == told:
		return false
	case found.mirror != "":
		r.tell(r.key, "warn", found.mirror)
		r.log.Warn("a mirror answers for the host of a repository", "repo", r.key.Name, "namespace", r.key.Namespace, "said", found.mirror)
	default:
		r.tell(r.key, "info", "its own host answers again, no mirror is needed")
		r.log.Info("host of a repository answers again", "repo", r.key.Name, "namespace", r.key.Namespace)
	}
	return before.Healthy
}

// mirrors adds a step for each mirror. One that does not serve makes no Repository ill.
func (t *TestResults) mirrors(ctx context.Context, p *probe) {
	sel, err := p.selected()
	if err != nil || len(p.remote.Fallbacks) == 0 {
		return
	}
	for _, a := range p.c.o.Git.CheckFallbacks(ctx, p.remote, sel) {
		step := Step{"mirror " + a.URL, StepOK, answeredIn(a.Took) + ", " + standsFor(a.Ref)}
		switch {
		case a.Err != nil:
			step.Result, step.Detail = StepWarning, gitText(a.Err)
		case p.err == nil && a.Ref.Hash != p.ref.Hash:
			step.Result, step.Detail = StepWarning, fmt.Sprintf("it has %s, and %s is wanted", standsFor(a.Ref), standsFor(p.ref))
		}
		at := slices.IndexFunc(t.Steps, func(s Step) bool { return s.Name == stepRemote }) + 1
		for at > 0 && at < len(t.Steps) && strings.HasPrefix(t.Steps[at].Name, "mirror ") {
			at++
		}
		t.Steps = slices.Insert(t.Steps, at, step)
	}
}
