package agent

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/kube"
	"limpet/sync/text"
)

// attendEvery is how soon a person sees that the API has gone or come back. A
// look reads two fields.
const attendEvery = time.Second

// attend notices when the API goes and when it comes: it says so in the log,
// once each time, and has the picture made anew. Nothing else would, because an
// API that is away sends no events.
func (a *Agent) attend(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		// Where nothing is there to be watched the first picture would come
		// with the idle tick, and look as if the start took that long.
		if a.jobs.WaitSynced(ctx) == nil && a.repos.WaitSynced(ctx) == nil {
			a.board.touch()
		}
		return nil
	})
	g.Go(func() error {
		tick := time.NewTicker(attendEvery)
		defer tick.Stop()
		var was, misread string
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if now := a.misread(); now != misread {
				misread = now
				a.board.touch()
			}
			now := a.trouble()
			if (now == "") == (was == "") {
				continue
			}
			was = now
			a.board.touch()
			if now == "" {
				a.log.Info("the API can be used again", "server", a.serverName())
			} else {
				a.log.Warn("the API cannot be used now; it is tried again and again", "server", a.serverName(), "err", now)
			}
		}
	})
	return g.Wait()
}

// trouble is why the API cannot be worked with and what to do about it, "" when
// it can. A picture that is not complete yet is no trouble by itself.
func (a *Agent) trouble() string {
	_, err := a.client.Down()
	for _, inf := range []*kube.Informer{a.jobs, a.repos} {
		if err == nil {
			err = inf.LastError()
		}
	}
	if err == nil {
		return ""
	}
	text := text.Redact(err.Error())
	if hint := kube.Hint(err); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// misread is what of --manifests is not applied, "" when all of it is: who has written the
// file looks at the screen and not into the log.
func (a *Agent) misread() string {
	if a.manifests == nil {
		return ""
	}
	return text.Redact(a.manifests.Problem())
}
