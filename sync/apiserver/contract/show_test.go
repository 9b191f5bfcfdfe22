package contract

import (
	"slices"
	"strings"
)

// columns are the names of the columns of a Table.
func columns(a answer) []string {
	var out []string
	for _, c := range list(a.object, "columnDefinitions") {
		out = append(out, str(c.(object), "name"))
	}
	return out
}

// cells are those of one row, by column.
func cells(a answer, row int) object {
	out := object{}
	for i, c := range list(list(a.object, "rows")[row].(object), "cells") {
		out[columns(a)[i]] = c
	}
	return out
}

var showCases = []testCase{
	{"lists as tables", func(e *env) {
		e.create(jobs, set(jobs.named("a"), "working", "status", "state"))
		e.create(jobs, jobs.named("b"))
		a := e.get(jobs.in(e.ns), accept(asTable)).is(200)
		if a.str("kind") != "Table" || a.str("apiVersion") != "meta.k8s.io/v1" || a.str("metadata", "resourceVersion") == "" {
			e.Errorf("answered %s", a.raw)
		}
		if got, want := columns(a), []string{"Name", "Created At", "Action", "State", "Message"}; !slices.Equal(got, want) {
			e.Errorf("columns = %q, want %q", got, want)
		}
		if len(list(a.object, "rows")) != 2 {
			e.Fatalf("rows = %v", a.object["rows"])
		}
		if c := cells(a, 0); c["Name"] != "a" || c["Action"] != "pull" || c["State"] != "working" {
			e.Errorf("first row = %v", c)
		}
		row := list(a.object, "rows")[0].(object)
		if str(row, "object", "kind") != "PartialObjectMetadata" || str(row, "object", "metadata", "name") != "a" || has(row, "object", "spec") {
			e.Errorf("object of the row = %v", row["object"])
		}
		first := list(a.object, "columnDefinitions")[0].(object)
		if first["type"] != "string" || first["format"] != "name" {
			e.Errorf("first column = %v", first)
		}
	}},
	{"shows dates as ages", func(e *env) {
		e.create(folders, folders.named("a"))
		age, _ := cells(e.get(folders.in(e.ns), accept(asTable)).is(200), 0)["Age"].(string)
		if !strings.HasSuffix(age, "s") {
			e.Errorf("Age = %q", age)
		}
	}},
	{"leaves cells of absent values empty", func(e *env) {
		e.create(jobs, jobs.named("a"))
		if c := cells(e.get(jobs.in(e.ns), accept(asTable)).is(200), 0); c["State"] != nil && c["State"] != "" {
			e.Errorf("State = %v", c["State"])
		}
	}},
	{"shows one object as a table", func(e *env) {
		e.create(folders, folders.named("a"))
		a := e.get(folders.in(e.ns, "a"), accept(asTable)).is(200)
		if c := cells(a, 0); c["Name"] != "a" || c["Title"] != "Title of a" {
			e.Errorf("row = %v", c)
		}
	}},
	{"puts the object that is asked for into rows", func(e *env) {
		e.create(folders, folders.named("a"))
		for include, want := range map[string]string{"Object": "Folder", "Metadata": "PartialObjectMetadata", "None": ""} {
			a := e.get(folders.in(e.ns), accept(asTable), query("includeObject", include)).is(200)
			if got := str(list(a.object, "rows")[0].(object), "object", "kind"); got != want {
				e.Errorf("%s gives %q, want %q", include, got, want)
			}
		}
		e.get(folders.in(e.ns), accept(asTable), query("includeObject", "Everything")).is(400)
	}},
	{"pages tables", func(e *env) {
		e.create(folders, folders.named("a"))
		e.create(folders, folders.named("b"))
		a := e.get(folders.in(e.ns), accept(asTable), query("limit", "1")).is(200)
		if len(list(a.object, "rows")) != 1 || a.str("metadata", "continue") == "" {
			e.Errorf("metadata = %v", a.object["metadata"])
		}
	}},
	{"has an empty table", func(e *env) {
		a := e.get(folders.in(e.ns), accept(asTable)).is(200)
		if rows, ok := a.object["rows"].([]any); !ok || len(rows) != 0 || len(columns(a)) == 0 {
			e.Errorf("answered %s", a.raw)
		}
	}},
	{"falls back to JSON", func(e *env) {
		e.create(folders, folders.named("a"))
		if a := e.get(folders.in(e.ns), accept(asTable+","+typeJSON)).is(200); a.str("kind") != "Table" {
			e.Errorf("answered a %s", a.str("kind"))
		}
		if a := e.get(folders.in(e.ns), accept("application/json;as=Poem;v=v1;g=meta.k8s.io,"+typeJSON)).is(200); a.str("kind") != "FolderList" {
			e.Errorf("answered a %s", a.str("kind"))
		}
	}},
	{"gives metadata alone", func(e *env) {
		o := e.create(folders, labeled(folders.named("a"), "x", "1"))
		a := e.get(folders.in(e.ns, "a"), accept(asPartial)).is(200)
		if a.str("kind") != "PartialObjectMetadata" || a.str("apiVersion") != "meta.k8s.io/v1" || has(a.object, "spec") ||
			uid(a.object) != uid(o) || a.str("metadata", "labels", "x") != "1" {
			e.Errorf("answered %s", a.raw)
		}
		l := e.get(folders.in(e.ns), accept(asPartialList)).has("a")
		if l.str("kind") != "PartialObjectMetadataList" || has(l.items()[0], "spec") || str(l.items()[0], "kind") != "PartialObjectMetadata" {
			e.Errorf("answered %s", l.raw)
		}
	}},
	{"shows errors as they are", func(e *env) {
		e.get(folders.in(e.ns, "absent"), accept(asTable)).fails(404, "NotFound")
		e.get(folders.in(e.ns, "absent"), accept(asPartial)).fails(404, "NotFound")
	}},
}
