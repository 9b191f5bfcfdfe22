package git

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing/format/config"

	"limpet/sync/text"
)

// maxConfig bounds a file of a repository in the form of git's configuration, .lfsconfig
// or .gitmodules, in bytes.
const maxConfig = 64 << 10

// parseConfig reads such a file. It comes from whoever may push, so names and values
// with control characters are refused.
func parseConfig(data []byte) (*config.Config, error) {
	switch {
	case len(data) > maxConfig:
		return nil, &TooLargeError{What: "configuration file", Size: int64(len(data)), Limit: maxConfig}
	case !utf8.Valid(data):
		return nil, errors.New("it is not UTF-8")
	}
	cfg := config.New()
	if err := config.NewDecoder(bytes.NewReader(data)).Decode(cfg); err != nil {
		return nil, fmt.Errorf("line %s", text.Line(err.Error(), 200)) // it begins with line and column
	}
	for _, s := range cfg.Sections {
		hidden := hiddenOption(s.Options)
		for _, sub := range s.Subsections {
			hidden = hidden || strings.ContainsFunc(sub.Name, text.Hidden) || hiddenOption(sub.Options)
		}
		if hidden {
			return nil, fmt.Errorf("section %q holds a control character", text.Line(s.Name, 100))
		}
	}
	return cfg, nil
}

func hiddenOption(options config.Options) bool {
	for _, o := range options {
		if strings.ContainsFunc(o.Value, text.Hidden) {
			return true
		}
	}
	return false
}
