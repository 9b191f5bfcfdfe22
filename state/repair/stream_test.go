package repair

import (
	"bufio"
	"bytes"
	"testing"

	"limpet/state/frame"
)

func FuzzReadSalvaged(f *testing.F) {
	var stream bytes.Buffer
	r := Record{Bucket: frame.Facts, Key: []byte("k"), Raw: frame.Encode(frame.Facts, []byte("k"), []byte("v"), 1)}
	if err := r.Write(&stream); err != nil {
		f.Fatal(err)
	}
	f.Add(stream.Bytes())
	f.Add(append(stream.Bytes(), "\x00{\"lost\":3}\n"...))
	f.Add([]byte("\x05facts\x00\x01k\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var again bytes.Buffer
		_, err := ReadRecords(bufio.NewReader(bytes.NewReader(data)), func(r Record) error { return r.Write(&again) })
		if err == nil && !bytes.HasPrefix(data, again.Bytes()) {
			t.Fatal("records read are not those of the stream")
		}
	})
}
