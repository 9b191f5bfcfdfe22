package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/labels"

	"limpet/state"
	"limpet/sync/jobs"
	"limpet/sync/members"
	"limpet/sync/repos"
)

// tenure says which Repositories are this agent's to look after: those that its
// selector takes, and of these its share where other agents look after them too.
type tenure struct{ *Agent }

// Mine implements repos.Tenure.
func (t tenure) Mine(k repos.Key) bool {
	u, ok := t.repos.Get(k.Namespace, k.Name)
	if !ok {
		return false
	}
	set := u.GetLabels()
	if s := t.cfg.Jobs.Selector; s != nil && !s.Matches(labels.Set(set)) {
		return false
	}
	return t.shares == nil || t.shares.members.Mine(k.Namespace, k.Name, set)
}

// linkTenure says the same of Connections. Selectors are about Repositories.
type linkTenure struct{ *Agent }

// Mine implements repos.Tenure.
func (t linkTenure) Mine(k repos.Key) bool {
	return t.shares == nil || t.shares.members.MineUnlabelled(k.Namespace, k.Name)
}

// leaseNamespace is where the Leases of agents are that look after all namespaces.
const leaseNamespace = "default"

// newMembers makes this agent, known by an id, one of those that share the
// Repositories and Connections of an API. A Lease lasts twice as long as a claim:
// what nobody looks after meanwhile is late, and nothing of it is lost.
func (a *Agent) newMembers(id string) *members.Members {
	host, err := os.Hostname()
	if err != nil {
		host = "limpet"
	}
	expiry := 2 * cmp.Or(a.cfg.Jobs.Expiry, jobs.DefaultExpiry)
	return members.New(a.client, members.Options{
		Namespace: cmp.Or(a.cfg.Namespace, leaseNamespace), ID: id, Agent: cmp.Or(a.cfg.Jobs.Agent, host),
		Scope:  members.Scope{Namespace: a.cfg.Namespace, Selector: a.cfg.Jobs.Selector},
		Expiry: expiry, Renew: expiry / 3, Logger: a.log.With("room", "members"),
		Changed: func() {
			agents, served := a.shares.members.Here()
			if served {
				a.log.Debug(fmt.Sprintf("repositories are shared by %d agents", len(agents)), "agents", agents)
			}
			a.shares.wake()
		},
	})
}

// factIdentity is the fact that holds the identity of an agent.
const factIdentity = "agent/id"

// identity tells this agent from all others. It is made once for a state file.
func (a *Agent) identity(ctx context.Context) (string, error) {
	id, err := a.cfg.Store.Fact(ctx, factIdentity)
	if err == nil && len(id) > 0 {
		return string(id), nil
	}
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return "", err
	}
	made := rand.Text()
	return made, a.cfg.Store.PutFact(ctx, factIdentity, []byte(made))
}
