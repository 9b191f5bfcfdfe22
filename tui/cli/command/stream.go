package command

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"time"

	"limpet/sync/snapshot"
)

// StreamLine is one document of a watch. Type names the member that it has besides.
type StreamLine struct {
	Type          string          `json:"type"`
	SchemaVersion int             `json:"schemaVersion"`
	Time          time.Time       `json:"time"`
	Job           any             `json:"job,omitempty"`
	Log           *snapshot.Event `json:"log,omitempty"`
	Ended         any             `json:"ended,omitempty"`
	Status        any             `json:"status,omitempty"`
}

// noteUnknownFields notes once the fields of --json that no line of a stream has.
func (g *Flags) noteUnknownFields() {
	if g.Notes == nil || g.streams {
		return
	}
	g.streams = true
	whole, met := map[string]any{}, map[string]bool{}
	for member := range reflect.TypeFor[StreamLine]().Fields() {
		name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
		whole[name] = nil
	}
	for _, field := range g.JSON {
		first, _, _ := strings.Cut(field, ".")
		_, met[field] = whole[first]
	}
	g.noteMissing(met, whole)
}

// PrintStream writes one document of a stream: a line of JSON, or a YAML document behind "---". With --json it
// has only those fields; that documents of one type lack fields of another is no error.
func (e *Env) PrintStream(line StreamLine) error {
	g, w := e.Flags, e.Out
	line.SchemaVersion, line.Time = schemaVersion, time.Now().UTC()
	var document any = line
	if len(g.JSON) > 0 {
		g.noteUnknownFields()
		picked, _, err := g.pick(line, map[string]bool{})
		if err != nil {
			return err
		}
		document = picked
	}
	if g.Output == "yaml" {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
		return PrintYAML(w, document)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(document)
}
