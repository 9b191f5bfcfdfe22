package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// worse is how much worse than the kept one a ratio may be.
const worse = 1.2

// writeBaseline keeps the ratios of the rows by their names.
func writeBaseline(path string, rows []row) error {
	kept := map[string]float64{}
	for _, r := range rows {
		if r.rounds > 0 {
			kept[r.name] = float64(int(r.ratio*1000+0.5)) / 1000
		}
	}
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// compareBaseline fails for each row that has become worse than the one kept.
func compareBaseline(path string, rows []row) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var kept map[string]float64
	if err := json.Unmarshal(data, &kept); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var failed []error
	seen := 0
	for _, r := range rows {
		was, ok := kept[r.name]
		if !ok {
			continue
		}
		seen++
		if r.worseThan(was) {
			failed = append(failed, fmt.Errorf("%s: %s: ratio %.2f (%.2f-%.2f), kept %.2f", r.name, r.what, r.ratio, r.low, r.high, was))
		}
	}
	if seen == 0 {
		failed = append(failed, fmt.Errorf("%s names no row that was measured", path))
	}
	return errors.Join(failed...)
}

// worseThan also asks that no round was as good as the kept ratio: a busy machine has rounds of
// both kinds, a loss has not.
func (r row) worseThan(kept float64) bool { return r.ratio > worse*kept && r.low > kept }
