package api

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// TestMoment: any time of an object becomes one that has a form in JSON that means the same, or is
// zero.
func TestMoment(t *testing.T) {
	t.Parallel()
	for _, ms := range []int64{math.MinInt64, -1, 0, 1, 1_700_000_000_123, 253_402_300_799_999, 253_402_300_800_000, math.MaxInt64} {
		got, good := TimeOfMillis(ms), ms > 0 && ms <= 253_402_300_799_999
		if data, err := json.Marshal(got); err != nil || got.IsZero() == good || good && got.UnixMilli() != ms {
			t.Errorf("%d: %s %s %v", ms, got, data, err)
		}
	}
	for text, want := range map[string]string{
		"2026-11-20T12:00:00Z":          "2026-11-20T12:00:00Z",
		"2026-11-20T12:00:00.25+02:00":  "2026-11-20T10:00:00.25Z",
		"2026-01-01T00:00:00+24:00":     "2025-12-31T00:00:00Z",
		"9999-12-31T23:59:59Z":          "9999-12-31T23:59:59Z",
		"9999-12-31T23:59:59-10:00":     "",
		"0000-01-01T00:00:00+10:00":     "",
		"0001-01-01T00:00:00Z":          "",
		"20000-01-01T00:00:00Z":         "",
		"yesterday":                     "",
		"":                              "",
		"2026-11-20T12:00:00Z and more": "",
	} {
		got := TimeOfText(text)
		data, err := json.Marshal(got)
		if want == "" && !got.IsZero() || err != nil || want != "" && string(data) != `"`+want+`"` {
			t.Errorf("%s: %s %s %v", text, got, data, err)
		}
	}
	if got := Time(time.Unix(1<<40, 0)); !got.IsZero() {
		t.Errorf("%s", got)
	}
}
