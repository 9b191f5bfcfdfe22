package reconcile_test

import (
	"context"
	"errors"
	"fmt"

	"limpet/sync/reconcile"
)

// A reconcile is a list of steps over what they share; one that is done ends it.
func ExampleRun() {
	type attempt struct{ suspended bool }
	storage := func(_ context.Context, a *attempt) (bool, error) {
		return a.suspended, nil
	}
	source := func(context.Context, *attempt) (bool, error) {
		return false, errors.New("the host does not answer")
	}
	steps := []reconcile.Step[*attempt]{storage, source}

	fmt.Println(reconcile.Run(context.Background(), &attempt{suspended: true}, steps))
	fmt.Println(reconcile.Run(context.Background(), &attempt{}, steps))

	// Output:
	// true <nil>
	// false the host does not answer
}
