package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSilentHosts: jobs at hosts that do not answer hold neither all drivers nor, when they are known to, more than half.
func TestSilentHosts(t *testing.T) {
	at := func(host string) func(u *unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedMap(u.Object, map[string]any{"url": "https://" + host + "/x.git", "branch": "main"}, "spec", "git")
		}
	}
	hang := func(ctx context.Context, task *Task) error {
		if strings.HasPrefix(task.Repository.Spec.Block().URL, "https://good") {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for name, hosts := range map[string][]string{
		"one host": {"hang", "hang", "hang", "hang"}, "several": {"hang1", "hang2", "hang3", "hang4"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				w := worker(hang)
				a := r.start("a", Options{Drivers: 3, Silent: func(host string) bool { return !strings.HasPrefix(host, "good") }}, w)
				for i, host := range hosts {
					r.repository(fmt.Sprint("hang", i), at(host))
					r.job(fmt.Sprint("hang", i), fmt.Sprint("hang", i))
				}
				pass(10 * time.Second)
				r.repository("good", at("good"))
				r.job("good", "good")
				pass(30 * time.Second)
				if !slices.Contains(w.seen(), "good 1 ") {
					t.Errorf("it did not run: %q, waiting %d", w.seen(), a.waiting())
				}
				a.stop()
			})
		})
	}
}
