package cli

import (
	"fmt"
	"slices"
	"strings"
)

// powershellScript is the completion for PowerShell 5 and later. The tables stand in the
// block itself: what is around it is not there any more when it runs.
func powershellScript(nodes []node) string {
	var b strings.Builder
	b.WriteString("# powershell completion for limpet; made by: limpet completion powershell\n\n" +
		"Register-ArgumentCompleter -Native -CommandName limpet -ScriptBlock {\n    param($wordToComplete, $commandAst, $cursorPosition)\n" +
		"    # Of each command: what is below it, its arguments, its own flags.\n    $commands = @{\n")
	for _, n := range nodes {
		fmt.Fprintf(&b, "        '%s' = '%s', '%s', '%s'\n", n.path, subWords(n), argWords(n), strings.Join(ownWords(n, nodes), " "))
	}
	fmt.Fprintf(&b, "    }\n    $common = '%s'\n    # What the flag of a command takes, those of all commands with none in front.\n    $values = @{\n", strings.Join(commonWords(nodes), " "))
	for _, n := range append(slices.Clone(nodes[1:]), nodes[0]) {
		for _, f := range valued(n, nodes[0]) {
			fmt.Fprintf(&b, "        '%s --%s' = '%s'\n", n.path, f.long, f.kind)
			if f.short != "" {
				fmt.Fprintf(&b, "        '%s -%s' = '%s'\n", n.path, f.short, f.kind)
			}
		}
	}
	b.WriteString("    }\n" + powershellWalk)
	return b.String()
}

// powershellWalk finds out where the cursor is. Nothing is given back for a file: then
// PowerShell offers those by itself.
const powershellWalk = `    $takes = {
        param($at, $flag)
        if ($values.ContainsKey("$at $flag")) { $values["$at $flag"] } else { $values[" $flag"] }
    }
    $before = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } | ForEach-Object { $_.Extent.Text.Trim("'", '"') })
    $at = ''; $n = 0; $skip = ''
    foreach ($w in $before) {
        if ($skip) { $skip = ''; continue }
        if ($w.StartsWith('-')) {
            if (-not $w.Contains('=')) { $skip = & $takes $at $w }
            continue
        }
        $next = "$at $w".Trim()
        if ($commands.ContainsKey($next)) { $at = $next; $n = 0 } else { $n++ }
    }
    $cur = "$wordToComplete".Trim("'", '"'); $front = ''
    $subs, $arguments, $flags = $commands[$at]
    if ($skip) { $kind = $skip }
    elseif ($cur.StartsWith('--') -and $cur.Contains('=')) {
        $flag, $cur = $cur -split '=', 2
        $front = "$flag="
        $kind = & $takes $at $flag
    }
    elseif ($cur.StartsWith('-')) { $kind = "=$common $flags" }
    elseif ($subs) { $kind = "=$subs" }
    else { $kind = @($arguments -split ' ')[$n] }
    if (-not $kind -or $kind -in 'file', 'dir', 'text') { return }
    if ($kind.StartsWith('=')) { $words = $kind.Substring(1) -split '[ ,]' }
    else { $words = & $commandAst.CommandElements[0].Extent.Text __complete $kind ".$cur" @before 2>$null }
    $words | Where-Object { $_ -and $_.StartsWith($cur, [StringComparison]::Ordinal) } |
        ForEach-Object { [System.Management.Automation.CompletionResult]::new("$front$_", $_, 'ParameterValue', $_) }
}
`
