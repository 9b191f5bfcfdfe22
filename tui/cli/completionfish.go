package cli

import (
	"fmt"
	"slices"
	"strings"
)

// fishScript is the completion for fish 3, with what each word means.
func fishScript(nodes []node) string {
	var b strings.Builder
	b.WriteString("# fish completion for limpet; made by: limpet completion fish\n\nset -g __limpet_commands")
	var takes []string
	for _, n := range nodes {
		if n.path != "" {
			fmt.Fprintf(&b, " '%s'", n.path)
		}
		for _, f := range n.flags {
			if f.kind == "" {
				continue
			}
			takes = append(takes, "--"+f.long)
			if f.short != "" {
				takes = append(takes, "-"+f.short)
			}
		}
	}
	slices.Sort(takes)
	fmt.Fprintf(&b, "\nset -g __limpet_takes %s\n%s", strings.Join(slices.Compact(takes), " "), fishWalk)
	for _, n := range nodes {
		fmt.Fprintf(&b, "\n# limpet %s\n", n.path)
		for _, s := range n.subs {
			fmt.Fprintf(&b, "complete -c limpet -n \"__limpet_at '%s'\" -a '%s' -d '%s'\n", n.path, s.Name, summary(s.Help))
		}
		for i, kind := range n.args {
			if takes := fishTakes(kind); takes != "" {
				fmt.Fprintf(&b, "complete -c limpet -n \"__limpet_at '%s' %d\"%s\n", n.path, i, takes)
			}
		}
		at := fmt.Sprintf(" -n \"__limpet_at '%s'\"", n.path)
		for _, f := range n.flags {
			switch everywhere := ofAll(f, nodes); {
			case !everywhere:
				fishFlag(&b, at, f)
			case n.path == "":
				fishFlag(&b, "", f)
			}
		}
	}
	return b.String()
}

func fishFlag(b *strings.Builder, at string, f flagWords) {
	fmt.Fprintf(b, "complete -c limpet%s -l %s", at, f.long)
	if f.short != "" {
		b.WriteString(" -s " + f.short)
	}
	if f.kind != "" {
		b.WriteString(" -r" + fishTakes(f.kind))
	}
	fmt.Fprintf(b, " -d '%s'\n", f.help)
}

// fishTakes are the options of 'complete' for a kind of value.
func fishTakes(kind string) string {
	switch {
	case strings.HasPrefix(kind, "="):
		return " -f -a '" + kind[1:] + "'"
	case kind == fillFile:
		return " -F"
	case kind == fillDir:
		return " -f -a '(__fish_complete_directories (commandline -ct))'"
	case kind == fillText:
		return " -f"
	}
	return " -f -a '(__limpet_names " + kind + ")'"
}

const fishWalk = `
# The words before the cursor are those of the command $argv[1]; with $argv[2],
# so many arguments stand behind it.
function __limpet_at
    set -l at
    set -l skip 0
    set -l n 0
    set -l words (commandline -opc)
    for w in $words[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $w
            case '--*=*'
            case '-*'
                if contains -- $w $__limpet_takes
                    set skip 1
                end
            case '*'
                set -l next (string trim -- "$at $w")
                if contains -- $next $__limpet_commands
                    set at $next
                    set n 0
                else
                    set n (math $n + 1)
                end
        end
    end
    test "$at" = "$argv[1]"; and test (count $argv) -lt 2 -o "$n" = "$argv[2]"
end

function __limpet_names
    set -l words (commandline -opc)
    set -l cur (string replace -r -- '^--[^=]*=' '' (commandline -ct))
    command $words[1] __complete $argv[1] "$cur" $words[2..-1] 2>/dev/null
end

complete -c limpet -f
`
