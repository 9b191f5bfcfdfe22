package target

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/resources"
)

// Plan is what makes a target equal to a commit.
type Plan interface {
	// Empty reports whether nothing differs.
	Empty() bool
	// Fetch brings the content of the files to write.
	Fetch(ctx context.Context)
	// Rehearse records what Apply would do, and writes nothing.
	Rehearse(ctx context.Context, to resources.Recorder) error
	// Apply carries the plan out.
	Apply(ctx context.Context, to resources.Recorder) (Outcome, error)
}

// Outcome is what Apply has done, also before an error.
type Outcome struct {
	Counts Counts  // of the objects afterwards; nil = unknown
	Phases []Phase // in the order of the work
}

// Counts are the numbers of objects by resource; nil means unknown.
type Counts map[schema.GroupResource]int64

// Phase is the duration of a part of the work.
type Phase struct {
	Name string
	Took time.Duration
}

// Progress shows the steps of a plan.
type Progress interface {
	SetMessage(ctx context.Context, text string)
	SetTotal(ctx context.Context, n int)
}
