package repair

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"limpet/state/frame"
)

// The child sends what it salvages as: one byte length and name of the bucket, two bytes length and key, four bytes
// length and frame. A length of zero for the bucket ends the records; the sum follows as JSON.
const salvageEnd = 0

func (r Record) Write(w io.Writer) error {
	head := append([]byte{byte(len(r.Bucket))}, r.Bucket...)
	head = binary.BigEndian.AppendUint16(head, uint16(len(r.Key)))
	head = append(head, r.Key...)
	head = binary.BigEndian.AppendUint32(head, uint32(len(r.Raw)))
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(r.Raw)
	return err
}

// ReadRecords calls emit for each record of the stream and returns the sum at its end.
func ReadRecords(r *bufio.Reader, emit func(Record) error) (Summary, error) {
	var sum Summary
	for {
		name, err := readPart(r, 1)
		if err != nil {
			return sum, err
		}
		if len(name) == 0 {
			return sum, json.NewDecoder(r).Decode(&sum)
		}
		key, err := readPart(r, 2)
		if err != nil {
			return sum, err
		}
		raw, err := readPart(r, 4)
		if err != nil {
			return sum, err
		}
		if err := emit(Record{frame.Bucket(name), key, raw}); err != nil {
			return sum, err
		}
	}
}

// readPart reads bytes behind a length of so many bytes, big endian.
func readPart(r io.Reader, size int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[4-size:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > frame.MaxBody+frame.HeaderSize {
		return nil, fmt.Errorf("part of %d bytes", n)
	}
	out := make([]byte, n)
	_, err := io.ReadFull(r, out)
	return out, err
}
