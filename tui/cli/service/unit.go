package service

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"limpet/tui/cli/command"
	"limpet/tui/cli/config"
)

// stateHome is the directory of StateDirectory=limpet.
const stateHome = "/var/lib/limpet"

// unit describes a systemd unit of the daemon.
type unit struct {
	user        bool              // for the service manager of one user
	runAs       string            // user of the host's service, "" = one that exists while it runs
	binary      string            // absolute
	args        []string          // behind --daemon; ${X} is expanded by systemd
	credentials map[string]string // name -> file of LoadCredential
	writable    []string          // directories besides the state
}

// unitText is the unit. Lines with "host:" are those of the service of the host; words in braces
// are replaced. A large state file is checked before READY=1 after a power cut. An exit with 2, 6
// or 9 would repeat: invalid usage, an unsupported version, a state file that is held or cannot be
// written.
//
//go:embed limpet.service
var unitText string

// text returns the unit file.
func (u unit) text() string {
	var lines, notes, credentials, writable strings.Builder
	for line := range strings.Lines(unitText) {
		if line, host := strings.CutPrefix(line, "host:"); !host || !u.user {
			lines.WriteString(line)
		}
	}
	words := []string{quoteUnit(u.binary), "--daemon"}
	for _, arg := range u.args {
		words = append(words, quoteUnit(arg))
	}
	user, target, path, ctl := "DynamicUser=yes", "multi-user.target", "/etc/systemd/system/"+unitName, "systemctl"
	if u.runAs != "" {
		user = "User=" + u.runAs
	}
	if u.user {
		target, path, ctl = "default.target", "~/.config/systemd/user/"+unitName, "systemctl --user"
	}
	fmt.Fprintf(&notes, "# By hand: save it as %s, then %s daemon-reload; %s enable --now limpet\n", path, ctl, ctl)
	if slices.ContainsFunc(u.args, func(arg string) bool { return strings.HasPrefix(arg, "--manifests=") }) {
		notes.WriteString("# For ${VAR} in the files of --manifests, add to [Service]: EnvironmentFile=/etc/limpet/environment\n")
	}
	for _, name := range slices.Sorted(maps.Keys(u.credentials)) {
		fmt.Fprintf(&credentials, "LoadCredential=%s:%s\n", name, strings.ReplaceAll(u.credentials[name], "%", "%%"))
	}
	for _, dir := range u.writable {
		fmt.Fprintf(&writable, "ReadWritePaths=%s\n", quoteUnit(dir))
	}
	switch {
	case u.user:
		writable.Reset()
	case len(u.writable) > 0:
		fmt.Fprintf(&notes, "# The service has to own the directories of ReadWritePaths: chown -R %s DIR%s\n", cmp.Or(u.runAs, "USER"),
			map[bool]string{true: ", with --run-as USER"}[u.runAs == ""])
	}
	return strings.NewReplacer("{notes}", notes.String(), "{command}", strings.Join(words, " "), "{user}", user,
		"{credentials}", credentials.String(), "{writable}", writable.String(), "{target}", target).Replace(lines.String())
}

// quoteUnit quotes a word of a command line for systemd. A variable in braces is kept.
func quoteUnit(word string) string {
	word = strings.ReplaceAll(word, "%", "%%")
	if !strings.Contains(word, "=${") {
		word = strings.ReplaceAll(word, "$", "$$")
	}
	if word != "" && !strings.ContainsAny(word, " \t\n\"'\\;") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(word) + `"`
}

// credentialFlags are the settings that name a file which the user of the service may not be able
// to read: systemd passes it as a credential.
var credentialFlags = []string{"config", "token-file", "kubeconfig", "tls-cert-file", "tls-key-file", "tls-ca-file", "webhook-cert-file",
	"webhook-key-file"}

// callFlags are the settings of one call that do not concern a service.
var callFlags = []string{"help", "config", "state", "output", "no-headers", "color", "quiet", "timeout", "token", "json", "yes",
	"read-only", "accessible"}

// defaultTokenFile is the default token file of the host's service.
const defaultTokenFile = "/etc/limpet/token"

// newUnit builds the unit from the settings of this call: those of flags and variables are written
// into it, those of the config file stay there.
func newUnit(e *command.Env, call *kong.Context, o unitOptions) (unit, error) {
	u := unit{user: o.User, runAs: o.RunAs, credentials: map[string]string{}}
	if o.RunAs != "" && !unixName.MatchString(o.RunAs) {
		return u, command.Usagef("limpet service install --run-as limpet", "%q is no name of a user", o.RunAs)
	}
	binary, err := os.Executable()
	if err == nil {
		u.binary, err = filepath.EvalSymlinks(binary)
	}
	if err != nil {
		return u, fmt.Errorf("find this program: %w", err)
	}
	for _, flag := range call.Model.Node.Flags {
		s := config.SettingOf(e, call, flag)
		given := s.Kind == command.FromFlag || s.Kind == command.FromEnv
		switch {
		case flag.Name == "token" && given:
			return u, command.Usagef("limpet service install --token-file FILE",
				"a unit can be read by everybody, so it takes no token (%s)", s.Origin)
		case slices.Contains(credentialFlags, flag.Name):
			if path, _ := s.Value.(string); path != "" && path != "-" {
				if path, err = filepath.Abs(path); err == nil {
					u.passFile(flag.Name, path)
				}
			}
		case flag.Name == "state":
			err = u.setState(e, s)
		case given && !slices.Contains(callFlags, flag.Name) && !(s.Kind == command.FromEnv && s.Name == "CREDENTIALS_DIRECTORY"):
			u.args = append(u.args, argsOf(flag)...)
		}
		if err != nil {
			return u, err
		}
	}
	if _, err := os.Stat(defaultTokenFile); err == nil && !u.user && e.Flags.Token == "" && e.Flags.TokenFile == "" {
		u.passFile("token-file", defaultTokenFile)
	}
	u.writable = e.Flags.SinkPrefix
	for _, path := range slices.Concat([]string{u.binary, e.Flags.Manifests, e.Flags.CredentialsDir}, u.writable, e.Flags.LocalGitPrefix) {
		if dir := u.hides(path); dir != "" {
			e.Notef("the service does not see %s: PrivateTmp and ProtectHome hide %s", path, dir)
		}
	}
	// A dynamic user can own no files with secrets that are not passed as credentials.
	secrets := e.Flags.CredentialsDir
	rules, _ := e.GitRules() // the daemon reports the error
	for _, rule := range rules {
		for _, path := range rule.Files {
			secrets = path
		}
	}
	if secrets != "" && !u.user && u.runAs == "" {
		e.Notef("the service's own user cannot read %s: name one who can with --run-as", secrets)
	}
	return u, nil
}

// hides returns which directory above a path the service does not see; "" = none.
func (u unit) hides(path string) string {
	for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"} {
		if !u.user && strings.HasPrefix(path, hidden) {
			return hidden
		}
	}
	return ""
}

// unitOptions are the options of the unit.
type unitOptions struct {
	User  bool   `help:"The service of this user, instead of the host's."`
	RunAs string `name:"run-as" help:"User that the host's service runs as. Default: one that exists only while it runs." placeholder:"USER"`
}

var unixName = regexp.MustCompile(`^[a-z_][a-z0-9_-]*$`)

// passFile passes a file to the service: for the host as a credential of systemd.
func (u *unit) passFile(flag, path string) {
	if u.user {
		u.args = append(u.args, "--"+flag+"="+path)
		return
	}
	u.credentials[flag] = path
	u.args = append(u.args, "--"+flag+"=${CREDENTIALS_DIRECTORY}/"+flag)
}

// setState sets the state file: for the host below StateDirectory.
func (u *unit) setState(e *command.Env, s config.Setting) error {
	path, err := e.StatePath()
	if err != nil {
		return err
	}
	switch {
	case u.user:
		u.args = append(u.args, "--state="+path)
	case e.Flags.State == "":
		u.args = append(u.args, "--state=${STATE_DIRECTORY}/"+command.StateName)
	case filepath.Dir(path) == stateHome || filepath.Dir(path) == "/var/lib/private/limpet":
		u.args = append(u.args, "--state=${STATE_DIRECTORY}/"+filepath.Base(path))
	default:
		return command.Usagef("limpet service install --state "+stateHome+"/"+command.StateName+"    # or --user",
			"the service of the host keeps its state in %s: %s (%s) cannot be used", stateHome, path, s.Origin)
	}
	return nil
}

// argsOf returns the value of a flag as arguments.
func argsOf(flag *kong.Flag) (out []string) {
	value := config.Shown(flag.Target)
	list, ok := value.([]string)
	if !ok {
		list = []string{fmt.Sprint(value)}
	}
	for _, one := range list {
		if path, err := filepath.Abs(one); err == nil && flag.PlaceHolder == "DIR" && one != "" {
			one = path
		}
		out = append(out, "--"+flag.Name+"="+one)
	}
	return out
}

// Examine returns the path of the installed unit of this user or of the host, "" where there is
// none, and what is wrong with it and the fix; "" when nothing is.
func Examine(ctx context.Context, user bool, env func(string) string) (path, fault, next string) {
	var place Location
	path, err := place.path(user, env)
	if err != nil {
		return "", "", ""
	}
	unit, err := os.ReadFile(path)
	switch {
	case os.IsNotExist(err):
		return "", "", ""
	case err != nil:
		return path, err.Error(), "ls -l " + path
	}
	manager := place.managerOf(user)
	if manager.available() != nil {
		manager = nil // perhaps the unit of an image
	}
	fault, next = examine(ctx, string(unit), user, manager)
	return path, fault, next
}

// examine judges the text of a unit, and asks systemd about it unless manager is nil.
func examine(ctx context.Context, unit string, user bool, manager *systemd) (fault, next string) {
	install, restart := "sudo limpet service install --now", "sudo systemctl restart "+unitName
	if user {
		install, restart = "limpet service install --user --now", "systemctl --user restart "+unitName
	}
	_, command, _ := strings.Cut(unit, "\nExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	binary := firstWord(command)
	other, err := os.Stat(binary)
	self, _ := os.Executable()
	this, _ := os.Stat(self)
	switch {
	case err != nil:
		return "the unit starts " + binary + ", which is not there", install
	case !os.SameFile(this, other): // nor is one that is not found
		return "the unit starts " + binary + ", which is another program than this", install
	case manager == nil:
		return "", ""
	}
	out, err := manager.run(ctx, "show", unitName, "--property=ActiveState,MainPID,Result")
	if err != nil {
		return err.Error(), "systemctl status " + unitName
	}
	is := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		is[key] = value
	}
	running, _ := os.Readlink("/proc/" + is["MainPID"] + "/exe")
	switch {
	case strings.HasSuffix(running, " (deleted)"):
		return "the daemon that runs is older than its program", restart
	case is["ActiveState"] == "failed":
		return "the service has failed: " + is["Result"], "journalctl -u " + unitName + " -n 20"
	case is["ActiveState"] != "active":
		return "the service does not run: it is " + is["ActiveState"], install
	}
	return "", ""
}

// firstWord returns the program of a command line of a unit, the reverse of quoteUnit.
func firstWord(command string) string {
	word, _, _ := strings.Cut(command, " ")
	if quoted, ok := strings.CutPrefix(command, `"`); ok {
		word, _, _ = strings.Cut(quoted, `"`)
	}
	return strings.ReplaceAll(word, "%%", "%")
}
