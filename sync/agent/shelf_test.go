package agent

import (
	"context"
	"testing"

	"limpet/sync/kube"
)

func TestShelf(t *testing.T) {
	t.Parallel()
	s := newShelf[int]()
	a, b, c := kube.ObjectOf(new(object)), kube.ObjectOf(new(object)), kube.ObjectOf(new(object))
	made := 0
	form := func(*object) int { made++; return made }
	turn := func(objects ...kube.Object) (out []int) {
		for _, u := range objects {
			out = append(out, s.of(u, form), s.of(u, form))
		}
		s.end(len(objects))
		return out
	}
	turn(a, b)
	if out := turn(a, b); made != 2 || out[0] != 1 || out[3] != 2 {
		t.Errorf("%d made, %v", made, out)
	}
	turn(a, c) // b was replaced by c
	if made != 3 || len(s.made) != 2 {
		t.Errorf("%d made, %d kept", made, len(s.made))
	}
	turn()
	if len(s.made) != 0 {
		t.Errorf("%d kept of nothing", len(s.made))
	}
}

// TestPictureOfACrowd: the rows of a picture are bounded, its counts are not.
func TestPictureOfACrowd(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	start(t, a.jobs.Run, a.repos.Run)
	crowd(t, a, mostJobs+7)
	p := newPainter(context.Background(), a)
	for range 2 {
		s := p.paint()
		if len(s.Jobs) != mostJobs || s.Counts.Pending != mostJobs+7 || s.Counts.All() != mostJobs+7 || s.Jobs[0].Name == "" {
			t.Errorf("%d rows, counts %+v", len(s.Jobs), s.Counts)
		}
	}
}
