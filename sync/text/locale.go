package text

import "strings"

// UTF8 reports whether the locale of an environment is UTF-8, so that its terminal
// shows more than ASCII. The first non-empty variable decides.
func UTF8(env func(string) string) bool {
	locale := env("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = env(name)
		}
	}
	locale = strings.ToUpper(locale)
	return strings.Contains(locale, "UTF-8") || strings.Contains(locale, "UTF8")
}
