package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	programPath = "/usr/bin/limpet"
	configPath  = "/etc/limpet/config.yaml"
)

// texts are the arguments with which limpet prints each file of a package.
var texts = map[string][]string{
	"limpet.1":    {"man"},
	"limpet.bash": {"completion", "bash"},
	"limpet.zsh":  {"completion", "zsh"},
	"limpet.fish": {"completion", "fish"},
}

// writeTexts has limpet print what a package has besides it. The environment is empty: settings of
// this host do not get into a release.
func writeTexts(program, dir string) error {
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	config := filepath.Join(dir, "config.yaml")
	if _, err := output(program, "config", "init", config); err != nil {
		return err
	}
	for name, args := range texts {
		text, err := output(program, args...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	unit, err := output(program, "--config", config, "service", "print")
	if err != nil {
		return err
	}
	_, unit, found := strings.Cut(unit, "[Unit]\n")
	if !found {
		return fmt.Errorf("limpet service print: no [Unit] in %q", unit)
	}
	unit = strings.NewReplacer(program, programPath, config, configPath).Replace(unit)
	unit = "# Of the package of limpet. Settings: " + configPath + "\n[Unit]\n" + unit
	return os.WriteFile(filepath.Join(dir, "limpet.service"), []byte(unit), 0o644)
}

func output(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"HOME=/nonexistent"}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("limpet %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
