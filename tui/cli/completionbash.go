package cli

import (
	"fmt"
	"slices"
	"strings"
)

// bashScript is the completion for bash 3.2 and later. It needs nothing of the
// package bash-completion.
func bashScript(nodes []node) string {
	var b strings.Builder
	b.WriteString("# bash completion for limpet; made by: limpet completion bash\n\n")
	b.WriteString("# Commands, flags and arguments of a command.\n__limpet_command() {\n  local common='" + strings.Join(commonWords(nodes), " ") + "'\n  subs= flags= args=\n  case \"$1\" in\n")
	for _, n := range nodes {
		fmt.Fprintf(&b, "  '%s') subs='%s' args='%s'\n    flags='%s' ;;\n", n.path, subWords(n), argWords(n), flagList(n, nodes))
	}
	b.WriteString("  *) return 1 ;;\n  esac\n}\n\n# What the flag $2 of the command $1 takes: nothing, words behind \"=\", or a kind of name.\n__limpet_value() {\n  kind=\n  case \"$1 $2\" in\n")
	// Those of all commands come last, so that a command may have its own.
	for _, n := range append(slices.Clone(nodes[1:]), nodes[0]) {
		for _, f := range valued(n, nodes[0]) {
			fmt.Fprintf(&b, "  %s) kind='%s' ;;\n", flagPattern(n.path, f), f.kind)
		}
	}
	b.WriteString("  esac\n}\n" + bashWalk)
	return b.String()
}

func subWords(n node) string {
	var words []string
	for _, s := range n.subs {
		words = append(words, s.Name)
	}
	return strings.Join(words, " ")
}

// argWords are the kinds of the arguments; words of a list are told apart by commas.
func argWords(n node) string {
	var words []string
	for _, kind := range n.args {
		words = append(words, strings.ReplaceAll(kind, " ", ","))
	}
	return strings.Join(words, " ")
}

// flagList are the flags of a command and, as a variable, those of all commands.
func flagList(n node, nodes []node) string {
	return strings.Join(append([]string{`'"$common"'`}, ownWords(n, nodes)...), " ")
}

// ownWords are the flags that not every command has.
func ownWords(n node, nodes []node) (words []string) {
	for _, f := range n.flags {
		if ofAll(f, nodes) {
			continue
		}
		words = append(words, "--"+f.long)
		if f.short != "" {
			words = append(words, "-"+f.short)
		}
	}
	return words
}

// ofAll says that every command has a flag.
func ofAll(f flagWords, nodes []node) bool {
	return !slices.ContainsFunc(nodes, func(n node) bool { return !slices.Contains(n.flags, f) })
}

// commonWords are the flags that every command has.
func commonWords(nodes []node) (words []string) {
	for _, f := range nodes[0].flags {
		if !ofAll(f, nodes) {
			continue
		}
		words = append(words, "--"+f.long)
		if f.short != "" {
			words = append(words, "-"+f.short)
		}
	}
	return words
}

// valued are the flags of a command that take a value: its own, since those of
// limpet itself, which every command has, are told once.
func valued(n, root node) (out []flagWords) {
	for _, f := range n.flags {
		if f.kind != "" && (n.path == "" || !slices.Contains(root.flags, f)) {
			out = append(out, f)
		}
	}
	return out
}

// flagPattern matches the words of a command and one of its flags.
func flagPattern(path string, f flagWords) string {
	at := "'" + path + " "
	if path == "" {
		at = "*' "
	}
	out := at + "--" + f.long + "'"
	if f.short != "" {
		out += "|" + at + "-" + f.short + "'"
	}
	return out
}

// bashWalk finds out where the cursor is. The line is split at blanks alone: bash
// itself also splits at "=" and ":", which belong to words here.
const bashWalk = `
_limpet() {
  local IFS=$' \t\n' line="${COMP_LINE:0:COMP_POINT}" words cur prev w at= n=0 skip= i
  local subs args flags kind list before= found
  read -r -a words <<< "$line"
  case "$line" in *[[:blank:]]) words+=("") ;; esac
  i=$((${#words[@]} - 1))
  [ "$i" -ge 1 ] || return 0
  cur="${words[$i]}" prev="${words[$((i - 1))]}"
  __limpet_command ''
  for w in "${words[@]:1:$((i - 1))}"; do
    if [ -n "$skip" ]; then skip=; continue; fi
    case "$w" in
    --*=*) ;;
    -*) __limpet_value "$at" "$w"; skip=$kind ;;
    *)
      case " $subs " in
      *" $w "*) at="${at:+$at }$w"; n=0; __limpet_command "$at" ;;
      *) n=$((n + 1)) ;;
      esac ;;
    esac
  done
  if [ -n "$skip" ]; then
    __limpet_value "$at" "$prev"
  elif [[ $cur == --*=* ]]; then
    __limpet_value "$at" "${cur%%=*}"
    [[ $COMP_WORDBREAKS == *=* ]] || before="${cur%%=*}="
    cur="${cur#*=}"
  elif [[ $cur == -* ]]; then
    kind="=$flags"
  elif [ -n "$subs" ]; then
    kind="=$subs"
  else
    list=($args)
    kind="${list[$n]//,/ }"
  fi
  COMPREPLY=()
  case "$kind" in
  =*) found=$(compgen -P "$before" -W "${kind#=}" -- "$cur") ;;
  file) compopt -o filenames 2>/dev/null; found=$(compgen -P "$before" -f -- "$cur") ;;
  dir) compopt -o filenames 2>/dev/null; found=$(compgen -P "$before" -d -- "$cur") ;;
  text | '') return 0 ;;
  *) found=$(compgen -P "$before" -W "$("${words[0]}" __complete "$kind" "$cur" "${words[@]:1:$((i - 1))}" 2>/dev/null)" -- "$cur") ;;
  esac
  IFS=$'\n'
  COMPREPLY=($found)
}
complete -F _limpet limpet
`
