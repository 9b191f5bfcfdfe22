package worker

import "fmt"

// A pull that deletes more than guardShare of the objects, or more than guardObjects of them, needs
// consent: the cause is more often an empty tree, a wrong path or a wrong branch than an intention.
// The share of up to guardFew deletions means little: they are permitted unless they are all
// objects, and at least guardAll.
const (
	guardAll     = 3
	guardFew     = 10
	guardShare   = 0.3
	guardObjects = 50
)

// guard returns an error for a mass deletion without consent. The caller has changed nothing yet.
func (t terms) guard(repo repository, deletions, managed int) error {
	all := deletions >= guardAll && deletions >= managed
	few := deletions <= guardFew || deletions <= guardObjects && float64(deletions) <= guardShare*float64(managed)
	if t.massDelete || few && !all {
		return nil
	}
	name := repo.name()
	return fmt.Errorf("this pull would delete %d of the %d objects of repository %q, so nothing was changed; "+
		"if that is meant, run: limpet repo pull %s --full --allow-mass-delete --namespace %s",
		deletions, managed, name, name, repo.namespace())
}
