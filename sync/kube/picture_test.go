package kube

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// TestDraft: what changes while a server still sends what there is counts as it
// was in the end, and nothing is seen of it before the draft is complete.
func TestDraft(t *testing.T) {
	for _, packed := range []bool{false, true} {
		p := newPicture(packed)
		told := 0
		p.join(Handler{Any: func() { told++ }})
		d := p.newDraft()
		tell := func(kind watch.EventType, i int, version string) {
			t.Helper()
			u := decoded(t, job(i))
			u.SetResourceVersion(version)
			if !d.takes(watch.Event{Type: kind, Object: p.hold(u)}) {
				t.Errorf("%s was not taken", kind)
			}
		}
		tell(watch.Added, 1, "11")
		tell(watch.Added, 2, "12")
		tell(watch.Modified, 2, "13")
		tell(watch.Deleted, 1, "14")
		if d.takes(watch.Event{Type: watch.Bookmark, Object: &unstructured.Unstructured{}}) ||
			d.takes(watch.Event{Type: watch.Error, Object: &metav1.Status{}}) {
			t.Error("took what is no object")
		}
		if told != 0 || p.now.count() != 0 {
			t.Errorf("%d objects and %d calls before the end", p.now.count(), told)
		}
		if err := p.Replace([]any{d}, ""); err != nil {
			t.Fatal(err)
		}
		if all := p.all(); len(all) != 1 || all[0].ResourceVersion() != "13" || told != 1 {
			t.Errorf("packed %v: %d objects, %d calls, want one of version 13", packed, len(all), told)
		}
	}
}

// TestSeenBeforeThePicture: who asks for it sees who wrote which field, which the
// picture does not keep.
func TestSeenBeforeThePicture(t *testing.T) {
	for _, packed := range []bool{false, true} {
		p, seen := newPicture(packed), 0
		p.seen = func(u *unstructured.Unstructured) { seen += len(u.GetManagedFields()) }
		u := decoded(t, job(1))
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "a", Operation: metav1.ManagedFieldsOperationUpdate}})
		if kept := p.hold(u).obj.Unstructured(); seen != 1 || len(kept.GetManagedFields()) != 0 {
			t.Errorf("packed %v: %d were seen, %d are kept", packed, seen, len(kept.GetManagedFields()))
		}
	}
}
