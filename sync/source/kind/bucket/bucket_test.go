package bucket_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/source"
)

// TestFollow: what has not changed costs one listing, a change the objects that have changed.
func TestFollow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := map[string]string{}
	for i := range 45 {
		key := fmt.Sprintf("dir-%d/file %d+.yaml", i%3, i)
		r.store(key, "body "+key)
		want[key] = "body " + key
	}
	r.Apply("site", ``)
	if files := r.ready("site", ""); !maps.Equal(files, want) {
		t.Errorf("%v", files)
	}
	if asked := r.ask("site"); !slices.Equal(asked, []string{"LIST"}) {
		t.Errorf("for nothing new: %q", asked)
	}
}

// TestChange: only what has changed is read; the rest is of the last artifact.
func TestChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store("a", "1", "b/c", "2", "b/d", "3", "b/empty", "", "b/", "", "same", "3")
	r.Apply("site", ``)
	r.ready("site", "")
	r.store("b/c", "two", "new", "4")
	r.set(func() { delete(r.objects, "a") })
	asked := r.ask("site")
	slices.Sort(asked)
	if want := []string{"GET b/c", "GET new", "LIST"}; !slices.Equal(asked, want) {
		t.Errorf("%q", asked)
	}
	want := map[string]string{"b/c": "two", "b/d": "3", "b/empty": "", "new": "4", "same": "3"}
	if files := r.ready("site", ""); !maps.Equal(files, want) {
		t.Errorf("%v", files)
	}
	before, _ := r.Files("site")
	r.set(func() { r.objects["b/d"] = object{"3", "0123456789abcdef-2"} }) // uploaded again, in other parts
	if asked := r.ask("site"); !slices.Equal(asked, []string{"LIST", "GET b/d"}) {
		t.Errorf("for another ETag: %q", asked)
	}
	if asked := r.ask("site"); !slices.Equal(asked, []string{"LIST"}) {
		t.Errorf("for another ETag, later: %q", asked)
	}
	if now, _ := r.Files("site"); now.Revision != before.Revision || !now.Updated.Equal(before.Updated) {
		t.Errorf("the same bytes made a new revision: %v", now)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "*")); len(left) > 0 {
		t.Errorf("left of downloads: %q", left)
	}
	index := filepath.Join(r.Dir, "bucket", "default", "site", strings.TrimPrefix(before.Digest, "sha256:")+".tar.gz.index")
	if err := errors.Join(os.Remove(index), syscall.Mkfifo(index, 0o600)); err != nil {
		t.Fatal(err)
	}
	if asked := r.ask("site"); len(asked) != 6 { // the region is learnt again, and all is read but what is empty
		t.Errorf("with a pipe in the place of the index: %q", asked)
	}
	if asked := r.ask("site"); !slices.Equal(asked, []string{"LIST"}) {
		t.Errorf("with a new index: %q", asked)
	}
}

// TestWithoutETag: where a store gives no ETag, as of files that were put below it by hand, the time of
// the last change stands for it.
func TestWithoutETag(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store("a", "1")
	r.set(func() { r.objects["by-hand"] = object{"2", "2026-11-29T10:00:00.5Z"} })
	r.Apply("site", ``)
	if files := r.ready("site", ""); !maps.Equal(files, map[string]string{"a": "1", "by-hand": "2"}) {
		t.Errorf("%v", files)
	}
	if asked := r.ask("site"); !slices.Equal(asked, []string{"LIST"}) {
		t.Errorf("for nothing new: %q", asked)
	}
	r.set(func() { r.objects["by-hand"] = object{"3", "2026-11-29T10:00:02Z"} })
	if asked := r.ask("site"); !slices.Equal(asked, []string{"LIST", "GET by-hand"}) {
		t.Errorf("for a change: %q", asked)
	}
	if files := r.ready("site", ""); files["by-hand"] != "3" {
		t.Errorf("%v", files)
	}
}

// TestRules: the rules of the spec and of the bucket hold, those of other kinds do not, and a prefix
// stays in the paths.
func TestRules(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store("logo.png", "x", ".github/a", "x", "site/a.md", "a", "site/b.yaml", "b", "site/c.yaml", "c", ".sourceignore", "*.md\n!c.yaml\n")
	r.Apply("site", `"ignore":"c.yaml"`)
	want := map[string]string{"logo.png": "x", ".github/a": "x", "site/b.yaml": "b", ".sourceignore": "*.md\n!c.yaml\n"}
	if files := r.ready("site", "", "site/a.md", "site/c.yaml"); !maps.Equal(files, want) {
		t.Errorf("%v", files)
	}
	if asked := r.ask("site"); !slices.Equal(asked, []string{"LIST"}) {
		t.Errorf("%q", asked)
	}
	r.Apply("below", `"prefix":"site/"`)
	if files := r.ready("below", "site/", "site/a.md"); len(files) != 3 || files["site/c.yaml"] != "c" {
		t.Errorf("%v", files)
	}
	before, _ := r.Files("site")
	r.store(".sourceignore", "*.md\n!c.yaml\n# new\n")
	if asked := r.ask("below"); !slices.Equal(asked, []string{"LIST", "GET .sourceignore"}) {
		t.Errorf("with a prefix: %q", asked)
	}
	r.ask("site")
	if now, files := r.Files("site"); now.Revision != before.Revision || !strings.Contains(files[".sourceignore"], "new") {
		t.Errorf("%v %v", now, files)
	}
}

// TestKeys: a listing of many pages, and keys that are odd.
func TestKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := map[string]string{"up/x": "1", "abs": "2", "a/b": "3", "ä +&%=~*'(1).txt": "4", "a b/c;d:@e": "5", "a-b": "6"}
	r.store("../up/./x", "1", "/abs", "2", "a//b", "3", "ä +&%=~*'(1).txt", "4", "a b/c;d:@e", "5", "a-b", "6", "dir/", "")
	for i := range 1001 {
		key := fmt.Sprintf("n/%d", i)
		r.store(key, "")
		want[key] = ""
	}
	r.Apply("site", ``)
	if files := r.ready("site", ""); !maps.Equal(files, want) {
		t.Errorf("%d files of %d", len(files), len(want))
	}
	r.set(func() { r.page = 7 })
	r.Apply("empty", `"prefix":"none/"`)
	if files := r.ready("empty", "none/"); len(files) != 0 {
		t.Errorf("%v", files)
	}
	if asked := r.ask("site"); len(asked) != 1008/7 {
		t.Errorf("%d requests", len(asked))
	}
}

// TestClouds: each provider with the identity of this host, and azure with the query of a SAS.
func TestClouds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store("a", "1", "b/c", "2", "b/ü + d", "3")
	r.Secret("sas", map[string]any{"sasKey": "?sv=2022&sig=" + secret})
	none := `"insecure":null,"secretRef":null,`
	for name, spec := range map[string]string{
		"gcp":   none + `"provider":"gcp","endpoint":"storage.googleapis.com"`,
		"azure": none + `"provider":"azure","endpoint":"https://contoso.blob.core.windows.net"`,
		"sas":   `"provider":"azure","endpoint":"` + r.URL + `","secretRef":{"name":"sas"}`,
		"aws":   none + `"provider":"aws","endpoint":"s3.` + region + `.amazonaws.com"`,
	} {
		r.Apply(name, spec)
		if files := r.ready(name, ""); !maps.Equal(files, map[string]string{"a": "1", "b/c": "2", "b/ü + d": "3"}) {
			t.Errorf("%s: %v", name, files)
		}
	}
}

// TestCut: a download that was cut goes on, and what has come of others is kept.
func TestCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store("a", "1", "large", strings.Repeat("0123456789", 1000), "z", "2")
	cut := func(w http.ResponseWriter, q *http.Request) bool {
		if q.URL.Path != "/site/large" || q.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", "10000")
		_, _ = w.Write([]byte(r.objects["large"].body[:5000]))
		return true
	}
	away := func(w http.ResponseWriter, q *http.Request) bool {
		if q.Header.Get("Range") != "" {
			refuse(w, http.StatusServiceUnavailable, "SlowDown", "")
			return true
		}
		return cut(w, q)
	}
	r.set(func() { r.before = away })
	r.Apply("site", ``)
	r.In("site", source.Failed, "BucketOperationFailed")
	r.set(func() { r.before = cut })
	if files := r.ready("site", ""); files["large"] != r.objects["large"].body {
		t.Errorf("%v", files)
	}
	if asked := r.take(); slices.Index(asked, "GET a") != 1 && slices.Index(asked, "GET z") < 0 {
		t.Errorf("%q", asked)
	}
	r.store("z", "3", "large", strings.Repeat("9", 9000))
	r.set(func() { r.before = away })
	r.ask("site")
	if a, files := r.Files("site"); a.Revision == r.revision("") || files["z"] != "2" {
		t.Errorf("%v", a)
	}
}

// TestClock: a host with another clock is asked in its own time.
func TestClock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.set(func() { r.clock = 30 * 24 * time.Hour })
	r.store("a", "1")
	r.Apply("site", ``)
	r.ready("site", "")
}

// TestBad: what is wrong has the reason of Flux and says what helps, without a secret.
func TestBad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store("a", "1", "a/b", "2", "big/x", strings.Repeat("0", 2<<20), "big", "4", "dots/../..", "3")
	r.Secret("half", map[string]any{"accesskey": access})
	r.Secret("wrong", map[string]any{"accesskey": access, "secretkey": "other"})
	elsewhere := newRig(t)
	silent := func(w http.ResponseWriter) { // it answers no more
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	answers := map[string]func(w http.ResponseWriter){
		"moved": func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL+"/moved")
			w.Header().Set("X-Amz-Bucket-Region", "eu-west-9")
			refuse(w, http.StatusMovedPermanently, "PermanentRedirect", "")
		},
		"silent":    silent,
		"site/big":  silent,
		"denied":    func(w http.ResponseWriter) { refuse(w, http.StatusForbidden, "AccessDenied", "") },
		"html":      func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>log in</html>")) },
		"truncated": func(w http.ResponseWriter) { _, _ = w.Write([]byte("<ListBucketResult><Contents><Key>a</Key>")) },
		"endless": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"))
		},
		"huge": func(w http.ResponseWriter) { _, _ = w.Write([]byte(strings.Repeat("<ListBucketResult>", 1<<20))) },
	}
	r.set(func() {
		r.before = func(w http.ResponseWriter, q *http.Request) bool {
			answer := answers[strings.Trim(q.URL.Path, "/")]
			if answer != nil {
				answer(w)
			}
			return answer != nil
		}
	})
	const failed = "BucketOperationFailed"
	for name, c := range map[string]struct{ spec, state, reason, message string }{
		"twofold":   {`"prefix":"a"`, source.Failed, failed, "two files"},
		"dots":      {`"prefix":"dots"`, source.Failed, failed, "spec.ignore"},
		"big":       {`"prefix":"big"`, source.Failed, "ArchiveOperationFailed", "--artifact-max-size"},
		"gone":      {`"bucketName":"gone"`, source.Failed, failed, "bucket 'gone' not found"},
		"region":    {`"region":"us-east-2"`, source.Failed, failed, "in region " + region},
		"signature": {`"secretRef":{"name":"wrong"}`, source.Failed, failed, "SignatureDoesNotMatch"},
		"half":      {`"secretRef":{"name":"half"}`, source.Failed, "AuthenticationFailed", "required fields 'accesskey' and 'secretkey'"},
		"missing":   {`"secretRef":{"name":"missing"}`, source.Failed, "AuthenticationFailed", "missing"},
		"anonymous": {`"secretRef":null`, source.Failed, failed, "403"},
		"moved":     {`"bucketName":"moved"`, source.Failed, failed, "in region eu-west-9"},
		"denied":    {`"bucketName":"denied"`, source.Failed, failed, "403 AccessDenied"},
		"html":      {`"bucketName":"html"`, source.Failed, failed, "no listing"},
		"truncated": {`"bucketName":"truncated"`, source.Failed, failed, "no listing"},
		"endless":   {`"bucketName":"endless"`, source.Failed, failed, "goes on"},
		"huge":      {`"bucketName":"huge"`, source.Failed, failed, "8.0 MiB"},
		"silent":    {`"bucketName":"silent","timeout":"200ms"`, source.Failed, failed, "deadline exceeded"},
		"stuck":     {`"prefix":"big","ignore":"big/*","timeout":"2s"`, source.Failed, failed, "nothing has come for 2s"},
		"away":      {`"endpoint":"127.0.0.1:1"`, source.Failed, failed, "refused"},
		"login":     {`"endpoint":"ann:` + secret + `@127.0.0.1"`, source.Stalled, "URLInvalid", "no address"},
		"scheme":    {`"endpoint":"http://127.0.0.1"`, source.Stalled, "URLInvalid", "without a scheme"},
		"slash":     {`"bucketName":"a/b"`, source.Stalled, "URLInvalid", "spec.bucketName"},
		"sts":       {`"sts":{"provider":"ldap","endpoint":"https://a"}`, source.Stalled, "InvalidSTSConfiguration", "secretRef"},
		"account":   {`"provider":"aws","serviceAccountName":"a","secretRef":null`, source.Stalled, "FeatureGateDisabled", ""},
		"open":      {`"provider":"aws","secretRef":null,"endpoint":"s3.amazonaws.com"`, source.Failed, "AuthenticationFailed", "for https"},
		"foreign":   {`"provider":"aws","secretRef":null`, source.Failed, "AuthenticationFailed", "identity of this host"},
		"plain":     {`"provider":"azure","endpoint":"http://blob.example.com"`, source.Stalled, "URLInvalid", "https://"},
		"noproof":   {`"provider":"azure","endpoint":"https://a.blob.core.windows.net"`, source.Failed, "AuthenticationFailed", "clientSecret"},
	} {
		r.Apply(name, c.spec)
		// A busy host may end the first look of one with a short timeout before it comes that far.
		s := source.FromObject(r.Until(name, c.state+": "+c.message, func(u *unstructured.Unstructured) bool {
			s := source.FromObject(u)
			return s.State == c.state && s.Reason == c.reason && strings.Contains(s.Message, c.message)
		}))
		if s.Artifact != nil || strings.Contains(s.Message, secret) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if asked := elsewhere.take(); len(asked) > 0 {
		t.Errorf("a redirect was followed: %q", asked)
	}
	r.Apply("learnt", `"prefix":"big","ignore":"*","region":null`) // the region is asked from the server
	r.ready("learnt", "none")
}
