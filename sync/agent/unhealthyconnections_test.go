package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/testenv/forgetest"
)

// TestUnhealthyConnectionIsShown checks that the snapshot shows a Connection that its
// host rejects, with reason and time of the check, until it recovers.
func TestUnhealthyConnectionIsShown(t *testing.T) {
	t.Parallel()
	c := &credentialCase{t: t, host: forgetest.New(t, forgetest.Options{}), dir: t.TempDir()}
	c.host.Token("right", forgetest.Rights{})
	c.a, _ = newAgent(t, func(cfg *Config) { cfg.AllowInsecureGit = true })
	start(t, c.a.Run)
	began := time.Now().Add(-time.Second)
	c.setSecret("wrong")
	c.create("Connection", "link", map[string]any{"title": "Link", "type": "gitlab", "url": c.host.URL},
		map[string]any{"token": map[string]any{"name": "creds"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var seq uint64
	await := func(is func([]snapshot.Connection) bool) snapshot.Connection {
		for {
			snap, err := c.a.Next(ctx, seq)
			must(t, err)
			if seq = snap.Seq; is(snap.UnhealthyConnections) {
				return append(snap.UnhealthyConnections, snapshot.Connection{})[0]
			}
		}
	}
	ill := await(func(ill []snapshot.Connection) bool { return len(ill) == 1 })
	if ill.Namespace != "default" || ill.Name != "link" || ill.Message == "" || strings.Contains(ill.Message, "wrong") ||
		ill.Checked.Before(began) || ill.Checked.After(time.Now().Add(time.Second)) {
		t.Errorf("row: %+v", ill)
	}
	c.setSecret("right")
	await(func(ill []snapshot.Connection) bool { return len(ill) == 0 })
}
