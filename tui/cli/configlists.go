package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// listFields are the keys of an entry of the lists that have no flag.
var listFields = map[string][]string{
	gitRulesKey:  {"url", "provider", "values", "files"},
	gitVerifyKey: {"url", "repositories", "mode", "principals", "values", "files"},
}

// listFaults are the keys in the entries of such a list that mean nothing, each with the
// one that was probably meant.
func (c *configFile) listFaults(name string) (out []fault) {
	key, ok := c.key(name)
	if !ok {
		return nil
	}
	known := listFields[name]
	again := "limpet config validate " + shellWord(c.Path)
	list, ok := c.Values[key].([]any)
	if !ok && c.Values[key] != nil {
		return []fault{{key, c.lines[key], key + " takes a list, each entry with " + strings.Join(known, ", "), again}}
	}
	for i, one := range list {
		entry, ok := one.(map[string]any)
		if !ok {
			out = append(out, fault{key, c.lines[key], fmt.Sprintf("%s: entry %d has no keys, known are %s", key, i+1, strings.Join(known, ", ")), again})
		}
		for _, field := range slices.Sorted(maps.Keys(entry)) {
			if slices.Contains(known, field) {
				continue
			}
			f := fault{key, c.fieldLine(key, i, field), fmt.Sprintf("%s: unknown key %q, known are %s", key, field, strings.Join(known, ", ")), again}
			if near := nearest(strings.ToLower(field), known); near != "" {
				f.Problem = fmt.Sprintf("%s: unknown key %q, did you mean %q?", key, field, near)
			}
			out = append(out, f)
		}
	}
	return out
}

// refused is the first of some faults as the error of a call.
func (c *configFile) refused(faults []fault) error {
	if len(faults) == 0 {
		return nil
	}
	at := c.where(faults[0].Key)
	at.Line = faults[0].Line
	return usage(faults[0].Next, "%s: %s", at, faults[0].Problem)
}

// fieldLine is the line on which a key of an entry of a list stands, counted from 1;
// that of the entry, or of the list, where these are written in one line.
func (c *configFile) fieldLine(list string, entry int, field string) int {
	at, found := -1, c.lines[list]
	dash, column := -1, -1 // where entries and their keys begin
	for i := c.lines[list]; i < len(c.text); i++ {
		text := strings.TrimLeft(c.text[i], " ")
		indent := len(c.text[i]) - len(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		begins := text == "-" || strings.HasPrefix(text, "- ")
		if dash < 0 {
			if !begins {
				break // it is written in one line
			}
			dash = indent
		}
		switch {
		case begins && indent == dash:
			if at++; at > entry {
				return found
			}
			rest := strings.TrimLeft(text[1:], " ")
			indent, text = indent+len(text)-len(rest), rest
			column = indent
			if at == entry {
				found = i + 1
			}
			if text == "" { // its keys begin in the next line
				column = -1
			}
		case indent <= dash:
			return found // the next key of the file
		case column < 0:
			column = indent
		}
		if key, _, ok := strings.Cut(text, ":"); ok && at == entry && indent == column && strings.Trim(key, "\"' ") == field {
			return i + 1
		}
	}
	return cmp.Or(found, c.lines[list])
}
