package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Fault is one problem in a config file.
type Fault struct {
	Key     string `json:"key"` // "" = the file as a whole
	Line    int    `json:"line"`
	Problem string `json:"problem"`
	Next    string `json:"next"` // the next command to run
}

// check rejects what no command accepts: a key that is no flag, a key given twice, a value of the wrong form.
func (c *ConfigFile) check(flags map[string]*kong.Flag) error {
	return c.refused(c.KeyFaults(flags))
}

// KeyFaults lists what check rejects, in the order of the lines.
func (c *ConfigFile) KeyFaults(flags map[string]*kong.Flag) []Fault {
	known := append(slices.Sorted(maps.Keys(flags)), GitRulesKey, GitVerifyKey)
	var out []Fault
	for _, key := range slices.Sorted(maps.Keys(c.Values)) {
		f := Fault{Key: key, Line: c.line(key), Next: "limpet --help    # a key is the name of a flag"}
		name := strings.ReplaceAll(key, "_", "-")
		flag := flags[name]
		_, list := c.Values[key].([]any)
		_, mapping := c.Values[key].(map[string]any)
		first, _ := c.Key(name)
		switch {
		case (name == GitRulesKey || name == GitVerifyKey) && first == key: // has a form of its own
			out = append(out, c.listFaults(name)...)
			continue
		case flag == nil:
			f.Problem = fmt.Sprintf("unknown key %q", key)
			if near := Nearest(key, known); near != "" {
				f.Problem += fmt.Sprintf(", did you mean %q?", near)
			}
		case first != key:
			f.Problem, f.Next = fmt.Sprintf("%s stands there as %s too", key, first), "limpet config show    # says which one is taken"
		case c.Values[key] == nil:
			f.Problem, f.Next = key+" has no value; take the line out for the default", "limpet config show"
		case mapping, list && !flag.IsSlice():
			f.Problem = key + " takes one value"
		default:
			continue
		}
		out = append(out, f)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Line < out[j].Line })
	return out
}

// ValueFaults validates each value of the file as its flag would.
func (c *ConfigFile) ValueFaults(flags map[string]*kong.Flag) (out []Fault) {
	for _, key := range slices.Sorted(maps.Keys(c.Values)) {
		flag := flags[strings.ReplaceAll(key, "_", "-")]
		if flag == nil {
			continue
		}
		target := reflect.New(flag.Target.Type()).Elem()
		err := flag.Parse(kong.Scan().PushTyped(Written(flag, c.Values[key]), kong.FlagValueToken), target)
		if words := flag.EnumSlice(); err == nil && flag.Enum != "" && !slices.Contains(words, fmt.Sprint(target.Interface())) {
			err = fmt.Errorf("must be one of %q but got %q", words, fmt.Sprint(target.Interface()))
		}
		if err != nil {
			out = append(out, Fault{key, c.line(key), strings.TrimPrefix(err.Error(), "--"+flag.Name+": "),
				"limpet --help    # says what --" + flag.Name + " takes"})
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Line < out[j].Line })
	return out
}

// FaultOf is a fault of the file as a whole.
func FaultOf(err error) Fault {
	f := Fault{Problem: err.Error(), Next: "limpet --help"}
	var own *Error
	if errors.As(err, &own) && own.Hint != "" {
		f.Next = own.Hint
	}
	return f
}

// listFields are the keys of an entry of the lists that have no flag.
var listFields = map[string][]string{
	GitRulesKey:  {"url", "provider", "values", "files"},
	GitVerifyKey: {"url", "repositories", "mode", "principals", "values", "files"},
}

// listFaults returns the unknown keys in the entries of such a list, each with the most similar known one.
func (c *ConfigFile) listFaults(name string) (out []Fault) {
	key, ok := c.Key(name)
	if !ok {
		return nil
	}
	known := listFields[name]
	again := "limpet config validate " + ShellWord(c.Path)
	list, ok := c.Values[key].([]any)
	if !ok && c.Values[key] != nil {
		return []Fault{{key, c.line(key), key + " takes a list, each entry with " + strings.Join(known, ", "), again}}
	}
	for i, one := range list {
		entry, ok := one.(map[string]any)
		if !ok {
			out = append(out, Fault{key, c.line(key),
				fmt.Sprintf("%s: entry %d has no keys, known are %s", key, i+1, strings.Join(known, ", ")), again})
		}
		for _, field := range slices.Sorted(maps.Keys(entry)) {
			if slices.Contains(known, field) {
				continue
			}
			f := Fault{key, c.fieldLine(key, i, field),
				fmt.Sprintf("%s: unknown key %q, known are %s", key, field, strings.Join(known, ", ")), again}
			if near := Nearest(strings.ToLower(field), known); near != "" {
				f.Problem = fmt.Sprintf("%s: unknown key %q, did you mean %q?", key, field, near)
			}
			out = append(out, f)
		}
	}
	return out
}

// refused returns the first of some faults as an error.
func (c *ConfigFile) refused(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	at := c.Where(faults[0].Key)
	at.Line = faults[0].Line
	return Usagef(faults[0].Next, "%s: %s", at, faults[0].Problem)
}

// A config file decides where tokens go, so an invalid one is an error and is never skipped.

// readConfigError returns the error of a config file that cannot be read.
func readConfigError(path string, err error) error {
	info, unseen := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Usagef("run it as the user that the file belongs to, as with sudo -u USER; or give another: --config FILE",
			"read config file: %w", err)
	case unseen == nil && info.IsDir():
		return Usagef("give a file: --config FILE", "config file %s is a directory", path)
	case isLink(path):
		return Usagef("ls -l "+path+"    # says where it leads", "config file %s is a link that leads to no file", path)
	}
	return Usagef("limpet config path    # one that is looked for", "read config file: %w", err)
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSymlink
}

// chmodPrivate returns the command that makes a file readable for the user of this process alone.
func chmodPrivate(path string) string {
	if info, err := os.Stat(path); err == nil && os.Geteuid() != 0 {
		if owner, known := info.Sys().(*syscall.Stat_t); known && int(owner.Uid) != os.Geteuid() {
			return fmt.Sprintf("sudo chown %d %s && sudo chmod 600 %s", os.Geteuid(), ShellWord(path), ShellWord(path))
		}
	}
	return "chmod 600 " + ShellWord(path)
}

// checkConfigMode rejects a config file that everybody may write, or the group of a user who is neither root nor
// the user of this process.
func checkConfigMode(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil // it was read and has been removed since
	}
	mode, me := info.Mode().Perm(), os.Geteuid()
	owner, known := info.Sys().(*syscall.Stat_t)
	strange := known && owner.Uid != 0 && int(owner.Uid) != me
	who, next := "everybody", "chmod o-w "+ShellWord(path)
	switch {
	case mode&0o002 != 0:
	case mode&0o020 != 0 && strange:
		who, next = fmt.Sprintf("the group of user %d, to whom it belongs", owner.Uid), "chmod go-w "+ShellWord(path)
	default:
		return nil
	}
	if me != 0 && known && int(owner.Uid) != me {
		next = "sudo " + next
	}
	return Usagef(next, "config file %s can be written by %s (mode %04o), and it says where tokens go", path, who, mode)
}
