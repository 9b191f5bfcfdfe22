package agent

import (
	"cmp"
	"sort"
	"strings"

	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// illLinksMost bounds the failing Connections of a picture: a few explain what
// fails, and each goes with every change of the picture.
const illLinksMost = 20

// illLinks are the Connections that are found not to be healthy, by namespace and
// name. An agent that looks after no repositories does not watch them.
func (a *Agent) illLinks() (out []snapshot.Connection) {
	if a.linked == nil {
		return nil
	}
	for _, s := range a.linked.Objects() {
		if s.Number(pathChecked) <= 0 || s.Bool(pathHealthy) {
			continue
		}
		ill := snapshot.Connection{Namespace: s.Namespace(), Name: s.Name(), Checked: api.TimeOfMillis(s.Number(pathChecked))}
		if seen, err := api.ConnectionView(s.Unstructured()); err == nil { // else it is ill all the same
			ill.Message = text.Redact(strings.Join(seen.Status.Health.Message, "; "))
		}
		out = append(out, ill)
	}
	sort.Slice(out, func(i, j int) bool {
		return cmp.Or(strings.Compare(out[i].Namespace, out[j].Namespace), strings.Compare(out[i].Name, out[j].Name)) < 0
	})
	return out[:min(len(out), illLinksMost)]
}
