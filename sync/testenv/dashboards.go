package testenv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Dashboard is one dashboard of a generated repository.
type Dashboard struct {
	Path  string // from the root of the repository
	UID   string
	Title string
	// k8s reports that the file is a whole API object with metadata and spec; else
	// it is the classic JSON of a dashboard.
	k8s bool

	seed    uint64
	version int // grows with each edit
}

// words make prose that differs from file to file, so that packs do not shrink
// to sizes that no real repository has.
var words = strings.Fields(`latency requests errors saturation memory heap pages cache queue depth replication lag
	throughput disk inode socket handshake certificate expiry rollout canary shard leader follower compaction flush
	checkpoint backlog consumer producer partition offset tenant quota throttle retry timeout upstream downstream
	gateway ingress egress bandwidth packet drop interface temperature humidity voltage harbour buoy tide sensor
	valve pump turbine substation feeder breaker inverter battery charge discharge forecast budget objective burn`)

// JSON renders the file. The same dashboard gives the same bytes; an edit
// changes a few lines of them, as an export from Grafana does.
func (d Dashboard) JSON() []byte {
	r := rand.New(rand.NewPCG(d.seed, 1))
	panels := make([]any, 0, 40)
	for i := range 3 + int(r.ExpFloat64()*9)%32 {
		panels = append(panels, panel(r, i, d.version))
	}
	spec := map[string]any{
		"annotations": map[string]any{"list": []any{map[string]any{"builtIn": 1, "enable": true, "hide": true,
			"datasource": map[string]any{"type": "grafana", "uid": "-- Grafana --"},
			"iconColor":  "rgba(0, 211, 255, 1)", "name": "Annotations & Alerts", "type": "dashboard"}}},
		"description": prose(r, 12), "editable": true, "fiscalYearStartMonth": 0, "graphTooltip": 1, "links": []any{},
		"panels": panels, "refresh": "1m", "schemaVersion": 41, "tags": []any{pick(r), pick(r), "generated"},
		"templating": map[string]any{"list": []any{variable(r, "cluster"), variable(r, "instance")}},
		"time":       map[string]any{"from": "now-6h", "to": "now"}, "timepicker": map[string]any{},
		"timezone": "browser", "title": d.Title, "version": 1 + d.version, "weekStart": "",
	}
	var file any = spec
	if d.k8s {
		file = map[string]any{"apiVersion": "dashboard.grafana.app/v1", "kind": "Dashboard",
			"metadata": map[string]any{"name": d.UID}, "spec": spec}
	} else {
		spec["uid"] = d.UID
		spec["id"] = nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(file); err != nil {
		panic("render dashboard: " + err.Error())
	}
	return out.Bytes()
}

func panel(r *rand.Rand, i, version int) map[string]any {
	kind := []string{"timeseries", "stat", "gauge", "table", "heatmap", "text"}[r.IntN(6)]
	metric := pick(r) + "_" + pick(r) + "_total"
	p := map[string]any{
		"id": i + 1, "type": kind, "title": title(r), "description": prose(r, 4+r.IntN(16)),
		"gridPos":    map[string]any{"h": 8, "w": 12, "x": 12 * (i % 2), "y": 8 * (i / 2)},
		"datasource": map[string]any{"type": "prometheus", "uid": "${datasource}"},
	}
	if kind == "text" {
		p["options"] = map[string]any{"mode": "markdown", "content": prose(r, 60+r.IntN(80))}
		return p
	}
	targets := make([]any, 0, 3)
	for t := range 1 + r.IntN(3) {
		targets = append(targets, map[string]any{"refId": string(rune('A' + t)), "editorMode": "code", "range": true,
			"datasource": map[string]any{"type": "prometheus", "uid": "${datasource}"},
			"expr": fmt.Sprintf(`sum by (instance) (rate(%s{cluster="$cluster", job=%q}[$__rate_interval])) > %d`, metric, pick(r),
				r.IntN(900)+version),
			"legendFormat": "{{instance}} " + pick(r)})
	}
	p["targets"] = targets
	p["fieldConfig"] = map[string]any{"overrides": []any{}, "defaults": map[string]any{
		"unit": []string{"short", "bytes", "s", "percentunit", "reqps"}[r.IntN(5)], "mappings": []any{},
		"color": map[string]any{"mode": "palette-classic"},
		"custom": map[string]any{"drawStyle": "line", "fillOpacity": r.IntN(30), "lineWidth": 1, "showPoints": "never",
			"stacking": map[string]any{"group": "A", "mode": "none"}, "axisPlacement": "auto"},
		"thresholds": map[string]any{"mode": "absolute", "steps": []any{
			map[string]any{"color": "green", "value": nil}, map[string]any{"color": "red", "value": 50 + r.IntN(400)}}}}}
	p["options"] = map[string]any{"legend": map[string]any{"calcs": []any{"mean", "max"}, "displayMode": "table", "placement": "bottom"},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	return p
}

func variable(r *rand.Rand, name string) map[string]any {
	return map[string]any{"name": name, "type": "query", "refresh": 2, "multi": true, "includeAll": true,
		"datasource": map[string]any{"type": "prometheus", "uid": "${datasource}"},
		"query":      fmt.Sprintf("label_values(%s_%s, %s)", pick(r), pick(r), name)}
}

func pick(r *rand.Rand) string { return words[r.IntN(len(words))] }

func prose(r *rand.Rand, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = pick(r)
	}
	return strings.Join(out, " ")
}

func title(r *rand.Rand) string {
	t := prose(r, 2)
	return strings.ToUpper(t[:1]) + t[1:]
}
