package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// realStore is the server of S3 of Versity at work, with the bucket site.
type realStore struct {
	t       *testing.T
	address string
	log     string // of what it was asked
	read    int    // bytes of that
}

func newRealStore(t *testing.T) *realStore {
	t.Helper()
	s := &realStore{t: t, address: freeAddress(t), log: filepath.Join(t.TempDir(), "access.log")}
	cmd := tied(exec.Command(testenv.Tool(t, "s3", "github.com/versity/versitygw/cmd/versitygw"), "--access", "limpet", "--secret", "geheim",
		"--port", s.address, "--access-log", s.log, "--quiet", "posix", t.TempDir()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until(t, "the store answers", func() bool {
		resp, err := http.Get("http://" + s.address)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	s.do(http.MethodPut, "", "", nil)
	return s
}

// do sends a signed request for an object and returns its answer and its ETag.
func (s *realStore) do(method, key, query string, body []byte) (answer []byte, etag string) {
	s.t.Helper()
	u := url.URL{Scheme: "http", Host: s.address, Path: "/site/" + key, RawQuery: query}
	u.RawPath = strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(u.Path))
	req, err := http.NewRequestWithContext(s.t.Context(), method, u.String(), bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	digest := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", digest)
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(s.t.Context(), aws.Credentials{AccessKeyID: "limpet", SecretAccessKey: "geheim"}, req, digest, "s3", "us-east-1",
		time.Now()); err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil || resp.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %s %s %v", method, key, resp.Status, answer, err)
	}
	return answer, resp.Header.Get("ETag")
}

// upload stores an object in parts of a size.
func (s *realStore) upload(key string, body []byte, part int) {
	s.t.Helper()
	answer, _ := s.do(http.MethodPost, key, "uploads=", nil)
	var begun struct{ UploadId string }
	if err := xml.Unmarshal(answer, &begun); err != nil {
		s.t.Fatal(err)
	}
	var parts strings.Builder
	for n := 1; len(body) > 0; n++ {
		size := min(part, len(body))
		_, etag := s.do(http.MethodPut, key, fmt.Sprintf("partNumber=%d&uploadId=%s", n, begun.UploadId), body[:size])
		fmt.Fprintf(&parts, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", n, etag)
		body = body[size:]
	}
	s.do(http.MethodPost, key, "uploadId="+begun.UploadId, []byte("<CompleteMultipartUpload>"+parts.String()+"</CompleteMultipartUpload>"))
}

// asked returns how many listings and objects were asked for since the last call.
func (s *realStore) asked() (listings, objects int) {
	s.t.Helper()
	data, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	since := string(data[s.read:])
	s.read = len(data)
	return strings.Count(since, " s3_ListObjectsV2 "), strings.Count(since, " s3_GetObject ")
}

// bucketSite is an agent that follows the bucket.
type bucketSite struct {
	*home
	artifacts string
	agent     *daemon
}

func newBucketSite(t *testing.T, s *realStore) *bucketSite {
	t.Helper()
	b := &bucketSite{home: newHome(t), artifacts: freeAddress(t)}
	b.file(t, "site/source.yaml", fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: default}
stringData: {accesskey: limpet, secretkey: geheim}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: Bucket
metadata: {name: site, namespace: default}
spec: {interval: 1h, insecure: true, endpoint: "%s", bucketName: site, secretRef: {name: keys}}
`, s.address))
	return b
}

func (b *bucketSite) start(t *testing.T) {
	t.Helper()
	b.agent = b.daemon(t, "--artifact-listen", b.artifacts, "--manifests", filepath.Join(b.dir, "site"))
}

func (b *bucketSite) look(t *testing.T) {
	t.Helper()
	b.must(t, 0, "source", "reconcile", "site", "--kind", "bucket", "-n", "default")
}

// served returns the source and the files that are served of it.
func (b *bucketSite) served(t *testing.T) (of source.Source, files map[string]string) {
	t.Helper()
	u, err := embeddedWorkload(t, b.home).client.Resource(api.Buckets).Namespace("default").Get(t.Context(), "site", metav1.GetOptions{})
	if err != nil {
		return of, nil
	}
	if of = source.FromObject(u); of.Artifact == nil {
		return of, nil
	}
	resp, err := http.Get(of.Artifact.URL)
	if err != nil {
		return of, nil
	}
	defer resp.Body.Close()
	files = map[string]string{}
	for f, err := range archive.Files(resp.Body) {
		if err != nil {
			return of, nil
		}
		data, _ := io.ReadAll(f)
		files[f.Path] = string(data)
	}
	return of, files
}

// follows waits until files are served, and looks at what is left beside them.
func (b *bucketSite) follows(t *testing.T, want map[string]string) source.Source {
	t.Helper()
	var of source.Source
	until(t, "the bucket is served", func() bool {
		var files map[string]string
		of, files = b.served(t)
		return of.State == source.Ready && !of.Waiting && maps.Equal(files, want)
	})
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(b.state()), "objects", "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	return of
}

// TestBucket: a bucket of a real store is followed: one listing where nothing is new, the one object
// that has changed, none where the same bytes were uploaded in other parts.
func TestBucket(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	s := newRealStore(t)
	b := newBucketSite(t, s)
	want := map[string]string{}
	for i := range 44 {
		key := fmt.Sprintf("dir-%d/a b+%d.yaml", i%4, i)
		want[key] = fmt.Sprint("body ", i)
		s.do(http.MethodPut, key, "", []byte(want[key]))
	}
	large := noise(1, 12<<20)
	want["large"] = string(large)
	s.upload("large", large, 5<<20)
	b.start(t)
	first := b.follows(t, want)
	expect := func(what string, listings, objects int) {
		t.Helper()
		if l, o := s.asked(); l != listings || o != objects {
			t.Errorf("%s: %d listings and %d objects", what, l, o)
		}
	}
	expect("new", 1, 45)
	b.look(t)
	b.follows(t, want)
	expect("nothing new", 1, 0)
	s.upload("large", large, 6<<20)
	b.look(t)
	if again := b.follows(t, want); again.Artifact.Revision != first.Artifact.Revision {
		t.Errorf("the same bytes made %s of %s", again.Artifact.Revision, first.Artifact.Revision)
	}
	s.asked()
	b.agent.stop(t)
	b.start(t)
	b.look(t)
	b.follows(t, want)
	if _, objects := s.asked(); objects > 0 {
		t.Errorf("after a start: %d objects", objects)
	}
	key := slices.Sorted(maps.Keys(want))[7]
	want[key] = "other"
	s.do(http.MethodPut, key, "", []byte("other"))
	b.look(t)
	b.follows(t, want)
	expect("one has changed", 1, 1)
	s.do(http.MethodDelete, key, "", nil)
	delete(want, key)
	b.look(t)
	b.follows(t, want)
}

// TestBucketKilled: whenever the process is killed on the way to a new revision, the one before or the
// new one is served after the start, and the new one follows.
func TestBucketKilled(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	s := newRealStore(t)
	b := newBucketSite(t, s)
	draw := rand.New(rand.NewPCG(suite.Seed(t), 5))
	want := map[string]string{}
	put := func(n, count int) {
		for range count {
			key := fmt.Sprintf("%d/%d", draw.IntN(3), draw.IntN(40))
			want[key] = string(noise(n, 1+draw.IntN(200_000)))
			s.do(http.MethodPut, key, "", []byte(want[key]))
		}
	}
	put(0, 60)
	b.start(t)
	b.follows(t, want)
	for n := range suite.Count(4, 60) {
		last := maps.Clone(want)
		put(n+1, 1+draw.IntN(40))
		b.look(t)
		kill := time.AfterFunc(time.Duration(draw.IntN(500))*time.Millisecond, func() { _ = b.agent.cmd.Process.Kill() })
		<-b.agent.done
		kill.Stop()
		b.start(t)
		if _, files := b.served(t); !maps.Equal(files, last) && !maps.Equal(files, want) {
			t.Fatalf("after kill %d: %d files", n, len(files))
		}
		b.look(t)
		b.follows(t, want)
	}
	b.agent.stop(t)
	b.sound(t)
}

// TestBucketPowerCut cuts the power within the transactions of an agent that follows a bucket: an
// artifact of its index is served, or made anew, and the newest objects follow.
func TestBucketPowerCut(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	s := newRealStore(t)
	b := newBucketSite(t, s)
	want := map[string]string{"same": "same"}
	s.do(http.MethodPut, "same", "", []byte("same"))
	cuts := b.cutPower(t, suite.Count(3, 40), func() {
		for n := range suite.Count(4, 8) {
			want["a"] = string(noise(n, 100_000))
			s.do(http.MethodPut, "a", "", []byte(want["a"]))
			if n == 0 {
				b.start(t)
			} else {
				b.look(t)
			}
			b.follows(t, want)
		}
		b.agent.stop(t)
	})
	files := os.DirFS(filepath.Join(b.dir, "state", "artifacts"))
	for _, cut := range cuts {
		next := newBucketSite(t, s)
		cut.restore(t, next.home)
		if err := os.CopyFS(filepath.Join(next.dir, "state", "artifacts"), files); err != nil {
			t.Fatal(err)
		}
		next.start(t)
		next.look(t)
		next.follows(t, want)
		next.agent.stop(t)
		next.sound(t)
	}
}
