package resources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// FuzzCompact holds the compactor to encoding/json: the same values are valid,
// and they have the same compact form.
func FuzzCompact(f *testing.F) {
	for _, s := range []string{
		"", " ", "{}", "[]", `{"a":1}`, "{ \"a\" :\t[ 1 , -0.5e+10 , true , false , null , \"x y\" ] }\n", `"\u00e9\n\\\""`, `"\x"`, `"\u12"`, "\"\x01\"",
		"01", "-", "1.", "1e", "[1,]", `{"a":}`, `{"a"}`, `{a:1}`, "{} {}", "[[[[]]]]", "nul", "truex", "\"\xff\"", "\u2028", "[1 2]", "{\"a\":1,}", "-0", "1E5", "[", "{", "\"",
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := compact(data)
		var want bytes.Buffer
		err := json.Compact(&want, data)
		if deep := checkDepth(data) != nil; ok != (err == nil && !deep) {
			t.Fatalf("compact(%q) = %v, encoding/json says %v (deep: %v)", data, ok, err, deep)
		}
		if ok && !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("compact(%q) = %q, want %q", data, got, want.Bytes())
		}
	})
}

func BenchmarkCompact(b *testing.B) {
	panel := `      { "datasource": { "type": "prometheus", "uid": "${source}" }, "gridPos": { "h": 8, "w": 12, "x": 0, "y": 24 },` +
		"\n        \"targets\": [ { \"expr\": \"sum(rate(http_requests_total{job=\\\"api\\\"}[5m])) by (code)\", \"refId\": \"A\" } ] },\n"
	data := fmt.Appendf(nil, "{\n  \"panels\": [\n%s      {}\n  ]\n}\n", strings.Repeat(panel, 200))
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, ok := compact(data); !ok {
				b.Fatal("not valid")
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			var out bytes.Buffer
			out.Grow(len(data))
			if err := json.Compact(&out, data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
