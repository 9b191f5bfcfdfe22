package state

import (
	"bufio"
	"bytes"
	"errors"
	"testing"
)

func TestFrameIsBoundToItsPlace(t *testing.T) {
	t.Parallel()
	raw := encodeFrame(factBucket, []byte("key"), []byte("body"), 42)
	flipped := bytes.Clone(raw)
	flipped[len(flipped)-1] ^= 1
	longer := append(bytes.Clone(raw), 0)
	newer := bytes.Clone(raw)
	newer[0] = frameVersion + 1
	restamped := bytes.Clone(raw)
	restamped[12]++
	cases := []struct {
		name   string
		bucket bucket
		key    string
		raw    []byte
		ok     bool
	}{
		{"as written", factBucket, "key", raw, true},
		{"other bucket", claimBucket, "key", raw, false},
		{"other key", factBucket, "kez", raw, false},
		{"flipped body", factBucket, "key", flipped, false},
		{"flipped stamp", factBucket, "key", restamped, false},
		{"longer", factBucket, "key", longer, false},
		{"shorter", factBucket, "key", raw[:len(raw)-1], false},
		{"header only", factBucket, "key", raw[:frameHeader], false},
		{"empty", factBucket, "key", nil, false},
		{"other version", factBucket, "key", newer, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, err := decodeFrame(c.bucket, []byte(c.key), c.raw)
			if c.ok != (err == nil) {
				t.Fatalf("error %v", err)
			}
			if !c.ok && !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v is not ErrCorrupt", err)
			}
			if c.ok && (f.stamp != 42 || string(f.body) != "body") {
				t.Errorf("frame %+v", f)
			}
		})
	}
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add("facts", []byte("key"), encodeFrame(factBucket, []byte("key"), []byte("body"), 1))
	f.Add("history", []byte{0, 0, 0, 0, 0, 0, 0, 1, 'u'}, encodeFrame(recordBucket, nil, nil, 0))
	f.Add("", []byte(nil), []byte{frameVersion, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, name string, key, raw []byte) {
		got, err := decodeFrame(bucket(name), key, raw)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if !bytes.Equal(encodeFrame(bucket(name), key, got.body, got.stamp), raw) {
			t.Fatal("a frame that was accepted encodes to other bytes")
		}
	})
}

func FuzzReadSalvaged(f *testing.F) {
	var stream bytes.Buffer
	r := salvaged{factBucket, []byte("k"), encodeFrame(factBucket, []byte("k"), []byte("v"), 1)}
	if err := r.write(&stream); err != nil {
		f.Fatal(err)
	}
	f.Add(stream.Bytes())
	f.Add(append(stream.Bytes(), "\x00{\"lost\":3}\n"...))
	f.Add([]byte("\x05facts\x00\x01k\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var again bytes.Buffer
		_, err := readSalvaged(bufio.NewReader(bytes.NewReader(data)), func(r salvaged) error { return r.write(&again) })
		if err == nil && !bytes.HasPrefix(data, again.Bytes()) {
			t.Fatal("records read are not those of the stream")
		}
	})
}
