package repos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/worker"
)

// trusting judges with the mirrors of a rig.
type trusting struct {
	*worker.Signers
	r *rig
}

func (t trusting) Judge(ctx context.Context, namespace, name string, repo api.Repository, remote git.Remote, ref git.Ref) (*api.Condition, error) {
	return t.Signers.Judge(ctx, t.r.mirrors, namespace, name, repo, remote, ref, time.Now())
}

// TestVerifiedAnew: a tag that was made anew for the same commit, and keys that are
// others now, have the commit that is in place judged again; nothing else does.
func TestVerifiedAnew(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	public, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var files atomic.Pointer[auth.Trust]
			has := func(principal string) {
				files.Store(&auth.Trust{Files: map[string][]byte{"allowed_signers": fmt.Appendf(nil, "%s %s", principal, public)}})
			}
			has("ops@example.com")
			r := newRig(t, server, func(r *rig, o *Options) {
				r.trust = func(context.Context, auth.Lookup) (*auth.Trust, error) { return files.Load(), nil }
				o.Trust = Verification{worker.NewSigners(r.trust, nil, nil), r.mirrors, time.Now}
			})
			r.repo.Add(t, "a.json")
			head := r.repo.Head(t)
			tag := func(options ...string) {
				t.Helper()
				r.repo.Git(t, append([]string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + file, "tag", "-f", "-m", time.Now().String()}, append(options, "v1")...)...)
			}
			told := func(what, status, reason string, pulls int64) {
				t.Helper()
				r.until(what, func(repo api.Repository) bool {
					c := condition(repo, api.ConditionVerified)
					return c.Status == status && c.Reason == reason && repo.Status.Sync.Finished > pulls
				})
			}
			finished := func() int64 { repo, _ := r.get(); return repo.Status.Sync.Finished }

			tag("-s")
			r.create(nil, nil)
			r.merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:"tag:v1",%q:"Tag",%q:"ops@example.com"}}}`, api.AnnoGitRef, api.AnnoGitVerify, api.AnnoGitVerifyPrincipals))
			r.pulls()
			r.later(0)
			told("the first pull", "True", "Verified", 0)
			r.pulled(head)

			before := finished()
			tag("-a")
			r.later(2 * time.Minute)
			told("the tag was made anew without a signature", "False", "Unsigned", before)
			before = finished()
			tag("-s")
			r.later(2 * time.Minute)
			told("and with one", "True", "Verified", before)

			before = finished()
			has("eve@example.com")
			r.later(2 * time.Minute)
			told("the key is another's now", "False", "Principal", before)
			has("ops@example.com")
			before = finished()
			r.later(2 * time.Minute)
			told("and back", "True", "Verified", before)

			before = finished()
			r.git.Reset()
			r.later(2 * time.Minute)
			eventually(t, "a look", func() bool { return r.git.Reset().InfoRefs > 0 })
			if repo := r.pulled(head); repo.Status.Sync.Finished != before {
				t.Error("it was pulled although nothing has changed")
			}
		})
	}
}
