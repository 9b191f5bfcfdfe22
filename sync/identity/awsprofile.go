package identity

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// profile is what a profile of the shared files gives: keys, or a role that is
// taken on with keys or by web identity.
type profile struct {
	keys awsKeys
	role role
}

// sections are the settings of an INI file, by section.
type sections map[string]map[string]string

// profile reads the shared files of AWS' tools. errNotSet when there is none of
// that name. A program that gives keys is not started, and there is nobody to log
// in by a browser.
func (p *aws) profile(r Request) (profile, error) {
	env := r.env(p.desk)
	name := env("AWS_PROFILE")
	home := p.o.Getenv("HOME")
	all := sections{}
	for _, at := range []struct {
		path   string
		prefix string
	}{
		{cmp.Or(env("AWS_CONFIG_FILE"), filepath.Join(home, ".aws", "config")), "profile "},
		{cmp.Or(env("AWS_SHARED_CREDENTIALS_FILE"), filepath.Join(home, ".aws", "credentials")), ""},
	} {
		text, err := r.file(at.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return profile{}, invalid("read the profiles of AWS", "%w", err)
		}
		all.read(string(text), at.prefix)
	}
	wrong := func(format string, args ...any) (profile, error) {
		return profile{}, invalid("use profile "+cmp.Or(name, "default")+" of AWS", format, args...)
	}
	set, ok := all[cmp.Or(name, "default")]
	if !ok && name != "" {
		return wrong("it is in none of the shared files")
	}
	keys := func(set map[string]string) awsKeys {
		return awsKeys{set["aws_access_key_id"], set["aws_secret_access_key"], set["aws_session_token"]}
	}
	out := profile{keys: keys(set), role: role{arn: set["role_arn"], session: set["role_session_name"], file: set["web_identity_token_file"]}}
	switch {
	case out.role.arn != "" && out.role.file == "":
		source := set["source_profile"]
		if source == "" {
			return wrong("role_arn needs source_profile or web_identity_token_file beside it")
		}
		if out.keys = keys(all[source]); out.keys.ID == "" || out.keys.Secret == "" {
			return wrong("source_profile %s has no keys", source)
		}
	case out.role.arn != "":
	case out.keys.ID != "" && out.keys.Secret != "":
	case set["credential_process"] != "":
		return wrong("credential_process is a program, and limpet starts none")
	case set["sso_session"] != "" || set["sso_start_url"] != "":
		return wrong("it needs a person who logs in (sso)")
	case name != "":
		return wrong("it has neither keys nor a role")
	default:
		return profile{}, errNotSet
	}
	return out, nil
}

// read adds a file. In the config file all sections but default have a prefix.
// Later values win, as later files do.
func (s sections) read(text, prefix string) {
	var at map[string]string
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case bare == "" || bare[0] == '#' || bare[0] == ';':
		case bare[0] == '[':
			name, _, ok := strings.Cut(bare[1:], "]")
			name = strings.TrimSpace(name)
			if at = nil; !ok {
				continue
			}
			if name != "default" {
				rest, had := strings.CutPrefix(name, prefix)
				if !had {
					continue
				}
				name = strings.TrimSpace(rest)
			}
			if at = s[name]; at == nil {
				at = map[string]string{}
				s[name] = at
			}
		case at == nil || line[0] == ' ' || line[0] == '\t': // a setting inside of another one
		default:
			if key, value, ok := strings.Cut(bare, "="); ok {
				value, _, _ = strings.Cut(value, " #")
				at[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
			}
		}
	}
}
