package state

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// The child sends what it salvages as: one byte length and name of the bucket, two bytes length and key, four bytes
// length and frame. A length of zero for the bucket ends the records; the sum follows as JSON.
const salvageEnd = 0

func (r salvaged) write(w io.Writer) error {
	head := append([]byte{byte(len(r.bucket))}, r.bucket...)
	head = binary.BigEndian.AppendUint16(head, uint16(len(r.key)))
	head = append(head, r.key...)
	head = binary.BigEndian.AppendUint32(head, uint32(len(r.raw)))
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(r.raw)
	return err
}

// readSalvaged calls emit for each record of the stream and returns the sum at its end.
func readSalvaged(r *bufio.Reader, emit func(salvaged) error) (salvageSum, error) {
	var sum salvageSum
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
		if err := emit(salvaged{bucket(name), key, raw}); err != nil {
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
	if n > maxBody+frameHeader {
		return nil, fmt.Errorf("part of %d bytes", n)
	}
	out := make([]byte, n)
	_, err := io.ReadFull(r, out)
	return out, err
}
