package daemon

import (
	"encoding/json"
	"fmt"
)

// demoDashboard is a classic dashboard as Grafana exports it, with the members that identify the format.
func demoDashboard(p sampleRepository, folder string, n, revision int) []byte {
	var panels []map[string]any
	for i, metric := range []string{"temperature_celsius", "power_watts", "errors_total"} {
		panels = append(panels, map[string]any{
			"id": i + 1, "type": "timeseries", "title": fmt.Sprintf("%s %d", metric, n),
			"gridPos":    map[string]int{"h": 8, "w": 12, "x": 12 * (i % 2), "y": 8 * (i / 2)},
			"datasource": map[string]string{"type": "prometheus", "uid": "local"},
			"targets":    []map[string]any{{"refId": "A", "expr": fmt.Sprintf(`avg(%s{site=%q,area=%q}) + %d`, metric, p.name, folder, revision)}},
		})
	}
	// Maps of plain values always marshal.
	data, _ := json.MarshalIndent(map[string]any{
		"uid": demoUID(p, folder, n), "title": fmt.Sprintf("%s %s %d", p.title, folder, n),
		"tags": []string{p.name, "demo"}, "schemaVersion": 41, "timezone": "utc", "refresh": "30s",
		"time": map[string]string{"from": "now-6h", "to": "now"}, "panels": panels,
	}, "", "  ")
	return append(data, '\n')
}

func demoUID(p sampleRepository, folder string, n int) string {
	clean := []byte(p.name + "-" + folder)
	for i, c := range clean {
		if c == '/' {
			clean[i] = '-'
		}
	}
	return fmt.Sprintf("%s-%d", clean, n)
}
