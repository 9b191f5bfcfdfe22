package cli

import (
	"fmt"
	"slices"
	"strings"
)

// zshScript is the completion for zsh, with what each word means.
func zshScript(nodes []node) string {
	var b strings.Builder
	b.WriteString("#compdef limpet\n# zsh completion for limpet; made by: limpet completion zsh\n\n__limpet_command() {\n  local -a common=(")
	for _, f := range nodes[0].flags {
		if ofAll(f, nodes) {
			zshFlag(&b, f)
		}
	}
	b.WriteString(" )\n  subs=() args=() flags=()\n  case \"$1\" in\n")
	for _, n := range nodes {
		fmt.Fprintf(&b, "  '%s')\n    args=(%s)\n    subs=(", n.path, quotedWords(argWords(n)))
		for _, s := range n.subs {
			fmt.Fprintf(&b, " '%s:%s'", s.Name, summary(s.Help))
		}
		b.WriteString(" )\n    flags=($common")
		for _, f := range n.flags {
			if !ofAll(f, nodes) {
				zshFlag(&b, f)
			}
		}
		b.WriteString(" ) ;;\n")
	}
	b.WriteString("  esac\n}\n\n__limpet_value() {\n  kind=\n  case \"$1 $2\" in\n")
	for _, n := range append(slices.Clone(nodes[1:]), nodes[0]) {
		for _, f := range valued(n, nodes[0]) {
			fmt.Fprintf(&b, "  %s) kind='%s' ;;\n", flagPattern(n.path, f), f.kind)
		}
	}
	b.WriteString("  esac\n}\n" + zshWalk)
	return b.String()
}

// quotedWords keeps zsh from reading "=word" as the path of a program.
func quotedWords(words string) string {
	if words == "" {
		return ""
	}
	return "'" + strings.ReplaceAll(words, " ", "' '") + "'"
}

func zshFlag(b *strings.Builder, f flagWords) {
	fmt.Fprintf(b, " '--%s:%s'", f.long, f.help)
	if f.short != "" {
		fmt.Fprintf(b, " '-%s:%s'", f.short, f.help)
	}
}

const zshWalk = `
_limpet() {
  local cur=$words[CURRENT] at= w skip= kind=
  local -a subs args flags names
  local -i n=1
  __limpet_command ''
  for w in "${(@)words[2,CURRENT-1]}"; do
    if [[ -n $skip ]]; then skip=; continue; fi
    case $w in
    --*=*) ;;
    -*) __limpet_value "$at" "$w"; skip=$kind ;;
    *)
      if (( ${subs[(I)$w:*]} )); then
        at="${at:+$at }$w"; n=1; __limpet_command "$at"
      else
        n+=1
      fi ;;
    esac
  done
  if [[ -n $skip ]]; then
    kind=$skip
  elif [[ $cur == --*=* ]]; then
    __limpet_value "$at" "${cur%%=*}"
    compset -P '*='
    cur=${cur#*=}
  elif [[ $cur == -* ]]; then
    _describe -o 'flag' flags
    return
  elif (( $#subs )); then
    _describe 'command' subs
    return
  else
    kind=${args[n]//,/ }
  fi
  case $kind in
  '='*) names=(${=kind#'='}); compadd -a names ;;
  file) _files ;;
  dir) _files -/ ;;
  text | '') return 1 ;;
  *) names=(${(f)"$($words[1] __complete $kind "$cur" "${(@)words[2,CURRENT-1]}" 2>/dev/null)"}); compadd -a names ;;
  esac
}

if [[ $funcstack[1] == _limpet ]]; then
  _limpet "$@"
else
  compdef _limpet limpet
fi
`
