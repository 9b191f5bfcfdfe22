package bucket

import (
	"path/filepath"
	"strings"
	"testing"
)

// FuzzPage: whatever a server sends as a listing, what is taken of it can be asked for, and no key
// leaves the archive.
func FuzzPage(f *testing.F) {
	for _, seed := range []string{
		`<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken>` +
			`<Contents><Key>a%2Fb+c</Key><ETag>&#34;x&#34;</ETag><Size>1</Size></Contents></ListBucketResult>`,
		"\ufeff" + `<EnumerationResults><Blobs><Blob><Name>../a</Name><Properties><Etag>0x8D</Etag><Content-Length>1</Content-Length></Properties>` +
			`</Blob></Blobs><NextMarker>a</NextMarker></EnumerationResults>`,
		`<ListBucketResult><Contents><Key>a</Key><ETag>W/"a"b"</ETag><Size>-1</Size></Contents></ListBucketResult>`,
		`<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%zz</Key></Contents></ListBucketResult>`, `<Error/>`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		objects, next, err := parsePage(body)
		if err != nil && (len(objects) > 0 || next != "") {
			t.Errorf("objects of a page that is refused: %v", err)
		}
		for _, o := range objects {
			if o.ETag == "" || o.Size < 0 || strings.ContainsAny(o.ETag, "\"\r\n") {
				t.Errorf("%+v", o)
			}
			if at := pathOf(o.Key); at != "" && !filepath.IsLocal(at) {
				t.Errorf("%q leaves the archive as %q", o.Key, at)
			}
		}
	})
}
