package state

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
)

// CheckReport is what Check found. No problems means that pages, frames and tallies are right.
type CheckReport struct {
	Frames   int
	Problems []string
}

// Check verifies bbolt's pages and every frame.
func (s *Store) Check(ctx context.Context) (CheckReport, error) {
	var r CheckReport
	err := s.view(ctx, func(v view) error {
		for err := range v.tx.Check(bbolt.WithKVStringer(bbolt.HexKVStringer())) {
			r.Problems = append(r.Problems, err.Error())
		}
		for _, b := range dataBuckets {
			err := v.whole(ctx, b, func([]byte, frame) error { r.Frames++; return nil })
			if err != nil {
				r.Problems = append(r.Problems, fmt.Sprint(err))
			}
		}
		return nil
	})
	return r, err
}
