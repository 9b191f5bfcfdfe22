package state

import (
	"bufio"
	"bytes"
	"errors"
	"testing"

	"limpet/state/frame"
	"limpet/state/repair"
)

func TestFrameIsBoundToItsPlace(t *testing.T) {
	t.Parallel()
	raw := frame.Encode(frame.Facts, []byte("key"), []byte("body"), 42)
	flipped := bytes.Clone(raw)
	flipped[len(flipped)-1] ^= 1
	longer := append(bytes.Clone(raw), 0)
	newer := bytes.Clone(raw)
	newer[0] = frame.FrameVersion + 1
	restamped := bytes.Clone(raw)
	restamped[12]++
	cases := []struct {
		name   string
		bucket frame.Bucket
		key    string
		raw    []byte
		ok     bool
	}{
		{"as written", frame.Facts, "key", raw, true},
		{"other bucket", frame.Claims, "key", raw, false},
		{"other key", frame.Facts, "kez", raw, false},
		{"flipped body", frame.Facts, "key", flipped, false},
		{"flipped stamp", frame.Facts, "key", restamped, false},
		{"longer", frame.Facts, "key", longer, false},
		{"shorter", frame.Facts, "key", raw[:len(raw)-1], false},
		{"header only", frame.Facts, "key", raw[:frame.HeaderSize], false},
		{"empty", frame.Facts, "key", nil, false},
		{"other version", frame.Facts, "key", newer, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, err := frame.Decode(c.bucket, []byte(c.key), c.raw)
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
	f.Add("facts", []byte("key"), frame.Encode(frame.Facts, []byte("key"), []byte("body"), 1))
	f.Add("history", []byte{0, 0, 0, 0, 0, 0, 0, 1, 'u'}, frame.Encode(frame.History, nil, nil, 0))
	f.Add("", []byte(nil), []byte{frame.FrameVersion, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, name string, key, raw []byte) {
		got, err := frame.Decode(frame.Bucket(name), key, raw)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if !bytes.Equal(frame.Encode(frame.Bucket(name), key, got.Body, got.Stamp), raw) {
			t.Fatal("a frame that was accepted encodes to other bytes")
		}
	})
}

func FuzzReadSalvaged(f *testing.F) {
	var stream bytes.Buffer
	r := repair.Record{Bucket: frame.Facts, Key: []byte("k"), Raw: frame.Encode(frame.Facts, []byte("k"), []byte("v"), 1)}
	if err := r.Write(&stream); err != nil {
		f.Fatal(err)
	}
	f.Add(stream.Bytes())
	f.Add(append(stream.Bytes(), "\x00{\"lost\":3}\n"...))
	f.Add([]byte("\x05facts\x00\x01k\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var again bytes.Buffer
		_, err := repair.ReadRecords(bufio.NewReader(bytes.NewReader(data)), func(r repair.Record) error { return r.Write(&again) })
		if err == nil && !bytes.HasPrefix(data, again.Bytes()) {
			t.Fatal("records read are not those of the stream")
		}
	})
}
