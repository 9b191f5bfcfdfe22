package api

import "time"

// Whoever may write an object may write any time into it. JSON knows the years up to 9999
// and zones of less than a day: a record or a picture with another time could be neither
// kept nor told.

// lastYear is the last one that has a form in JSON. Source: RFC 3339.
const lastYear = 9999

// Time is t in UTC; zero where it has no form in JSON.
func Time(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > lastYear {
		return time.Time{}
	}
	return t
}

// TimeOfMillis is the Moment of so many milliseconds since the epoch, as Grafana's
// objects have them; zero for none and for those below none.
func TimeOfMillis(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return Time(time.UnixMilli(ms))
}

// TimeOfText is the Moment of a text of RFC 3339, fractions of a second included; zero
// for what is none.
func TimeOfText(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return Time(t)
}
