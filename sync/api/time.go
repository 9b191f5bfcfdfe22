package api

import (
	"time"
)

// An object may hold any time. JSON knows the years up to 9999 and zones of less than a
// day: a record or a snapshot with another time could not be encoded.

// lastYear is the last one that has a form in JSON. Source: RFC 3339.
const lastYear = 9999

// Time returns t in UTC, zero when it has no form in JSON.
func Time(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > lastYear {
		return time.Time{}
	}
	return t
}

// TimeOfMillis returns the Time of milliseconds since the epoch, the form of Grafana's objects;
// zero for 0 and less.
func TimeOfMillis(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return Time(time.UnixMilli(ms))
}

// TimeOfText returns the Time of a text in the form of RFC 3339, with or without fractions
// of a second; zero for other texts.
func TimeOfText(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return Time(t)
}
