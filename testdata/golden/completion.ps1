# powershell completion for limpet; made by: limpet completion powershell

Register-ArgumentCompleter -Native -CommandName limpet -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    # Of each command: what is below it, its arguments, its own flags.
    $commands = @{
        '' = 'job completion', '', ''
        'job' = 'list watch', '', ''
        'job list' = '', '', '--repository -r --limit'
        'job watch' = '', 'job', ''
        'completion' = '', '=bash,powershell', ''
    }
    $common = '--state --output -o --quiet -q'
    # What the flag of a command takes, those of all commands with none in front.
    $values = @{
        'job list --repository' = 'repository'
        'job list -r' = 'repository'
        'job list --limit' = 'text'
        ' --state' = 'file'
        ' --output' = '=table json'
        ' -o' = '=table json'
    }
    $takes = {
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
