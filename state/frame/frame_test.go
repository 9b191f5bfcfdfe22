package frame

import (
	"bytes"
	"errors"
	"testing"
)

func TestFrameIsBoundToItsPlace(t *testing.T) {
	t.Parallel()
	raw := Encode(Facts, []byte("key"), []byte("body"), 42)
	flipped := bytes.Clone(raw)
	flipped[len(flipped)-1] ^= 1
	longer := append(bytes.Clone(raw), 0)
	newer := bytes.Clone(raw)
	newer[0] = FrameVersion + 1
	restamped := bytes.Clone(raw)
	restamped[12]++
	cases := []struct {
		name   string
		bucket Bucket
		key    string
		raw    []byte
		ok     bool
	}{
		{"as written", Facts, "key", raw, true},
		{"other bucket", Claims, "key", raw, false},
		{"other key", Facts, "kez", raw, false},
		{"flipped body", Facts, "key", flipped, false},
		{"flipped stamp", Facts, "key", restamped, false},
		{"longer", Facts, "key", longer, false},
		{"shorter", Facts, "key", raw[:len(raw)-1], false},
		{"header only", Facts, "key", raw[:HeaderSize], false},
		{"empty", Facts, "key", nil, false},
		{"other version", Facts, "key", newer, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, err := Decode(c.bucket, []byte(c.key), c.raw)
			if c.ok != (err == nil) {
				t.Fatalf("error %v", err)
			}
			if !c.ok && !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v is not ErrCorrupt", err)
			}
			if c.ok && (f.Stamp != 42 || string(f.Body) != "body") {
				t.Errorf("frame %+v", f)
			}
		})
	}
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add("facts", []byte("key"), Encode(Facts, []byte("key"), []byte("body"), 1))
	f.Add("history", []byte{0, 0, 0, 0, 0, 0, 0, 1, 'u'}, Encode(History, nil, nil, 0))
	f.Add("", []byte(nil), []byte{FrameVersion, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, name string, key, raw []byte) {
		got, err := Decode(Bucket(name), key, raw)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if !bytes.Equal(Encode(Bucket(name), key, got.Body, got.Stamp), raw) {
			t.Fatal("a frame that was accepted encodes to other bytes")
		}
	})
}
