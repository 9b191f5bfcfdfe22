package complete

// scripts pass the words of the command line to Word and its candidates to the shell.
var scripts = map[string]string{
	// Bash 3.2 and later, without the package bash-completion. The line is split at blanks alone: bash itself
	// also splits at "=" and ":", which belong to words here.
	"bash": `# bash completion for limpet; made by: limpet completion bash
_limpet() {
  local IFS=$' \t\n' line="${COMP_LINE:0:COMP_POINT}" words cur before= n
  read -r -a words <<< "$line"
  case "$line" in *[[:blank:]]) words+=("") ;; esac
  n=$((${#words[@]} - 1))
  [ "$n" -ge 1 ] || return 0
  cur="${words[$n]}"
  case "$cur" in --*=*) before="${cur%%=*}=" ;; esac
  IFS=$'\n'
  COMPREPLY=($("${words[0]}" __complete "${words[@]:1:$((n - 1))}" ".$cur" 2>/dev/null))
  COMPREPLY=(${COMPREPLY[@]+"${COMPREPLY[@]%%$'\t'*}"})
  case "${COMPREPLY[*]-}" in
  :file) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -P "$before" -f -- "${cur#"$before"}")) ;;
  :dir) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -P "$before" -d -- "${cur#"$before"}")) ;;
  esac
  case "$before$COMP_WORDBREAKS" in
  --*=*=*) COMPREPLY=(${COMPREPLY[@]+"${COMPREPLY[@]#"$before"}"}) ;;
  esac
}
complete -F _limpet limpet
`,
	"zsh": `#compdef limpet
# zsh completion for limpet; made by: limpet completion zsh
_limpet() {
  local cur=$words[CURRENT] line word
  local -a found names
  found=("${(@f)$($words[1] __complete "${(@)words[2,CURRENT-1]}" ".$cur" 2>/dev/null)}")
  if [[ $cur == --*=* ]]; then
    compset -P '*='
    found=("${(@)found#--*=}")
  fi
  case $found[1] in
  '') return 1 ;;
  :file) _files; return ;;
  :dir) _files -/; return ;;
  esac
  for line in $found; do
    word=${line%%$'\t'*}
    names+=("${word//:/\\:}${${line#$word}/$'\t'/:}")
  done
  _describe limpet names
}
if [[ $funcstack[1] == _limpet ]]; then
  _limpet "$@"
else
  compdef _limpet limpet
fi
`,
	"fish": `# fish completion for limpet; made by: limpet completion fish
function __limpet_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l found (command $words[1] __complete $words[2..-1] ".$cur" 2>/dev/null)
    switch "$found[1]"
        case ''
        case ':file'
            __fish_complete_path (string replace -r -- '^--[^=]*=' '' "$cur")
        case ':dir'
            __fish_complete_directories (string replace -r -- '^--[^=]*=' '' "$cur")
        case '*'
            printf '%s\n' $found
    end
end
complete -c limpet -f -a '(__limpet_complete)'
`,
	// PowerShell 5 and later. It offers files by itself where nothing is given back.
	"powershell": `# powershell completion for limpet; made by: limpet completion powershell
Register-ArgumentCompleter -Native -CommandName limpet -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $before = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } | ForEach-Object { $_.Extent.Text.Trim("'", '"') })
    $current = "$wordToComplete".Trim("'", '"')
    & $commandAst.CommandElements[0].Extent.Text __complete @before ".$current" 2>$null |
        Where-Object { -not $_.StartsWith(':') } | ForEach-Object {
            $word, $help = $_ -split [char]9, 2
            if (-not $help) { $help = $word }
            [System.Management.Automation.CompletionResult]::new($word, $word, 'ParameterValue', $help)
        }
}
`,
}
