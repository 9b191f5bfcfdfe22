package main

import (
	"embed"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

//go:embed scripts
var scripts embed.FS

// writePackages writes the .deb and the .rpm of an architecture.
func (r *release) writePackages(a arch) error {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		text, err := scripts.ReadFile("scripts/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.texts, name), text, 0o755); err != nil {
			return err
		}
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.writePackage(a, format); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) writePackage(a arch, format string) error {
	text := func(name string) string { return filepath.Join(r.texts, name) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name:            "limpet",
		Arch:            a.nfpm,
		Platform:        "linux",
		Version:         r.packageVersion(),
		VersionSchema:   "none",
		Release:         "1",
		Section:         "admin",
		Priority:        "optional",
		Maintainer:      "The limpet authors <limpet@example.com>",
		Description:     "Edge agent for Git sync of Grafana dashboards\nOne static program: it needs no other package.",
		License:         "Apache-2.0",
		DisableGlobbing: true,
		MTime:           r.date,
		Overridables: nfpm.Overridables{
			RPM: nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons"},
			Scripts: nfpm.Scripts{
				PostInstall: text("postinst"),
				PreRemove:   text("prerm"),
				PostRemove:  text("postrm"),
			},
			Contents: files.Contents{
				file(r.binary(a), programPath, 0o755),
				{Destination: "/etc/limpet", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755}},
				{
					Source:      text("config.yaml"),
					Destination: configPath,
					Type:        files.TypeConfigNoReplace,
					FileInfo:    &files.ContentFileInfo{Mode: 0o600},
				},
				file(text("limpet.service"), "/usr/lib/systemd/system/limpet.service", 0o644),
				file(text("limpet.1"), "/usr/share/man/man1/limpet.1", 0o644),
				file(text("limpet.bash"), "/usr/share/bash-completion/completions/limpet", 0o644),
				file(text("limpet.zsh"), "/usr/share/zsh/vendor-completions/_limpet", 0o644),
				file(text("limpet.fish"), "/usr/share/fish/vendor_completions.d/limpet.fish", 0o644),
				{Destination: "/usr/share/doc/limpet", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755}},
				file(filepath.Join(r.dist, "LICENSE"), "/usr/share/doc/limpet/copyright", 0o644),
				file(filepath.Join(r.dist, "THIRD_PARTY_LICENSES"), "/usr/share/doc/limpet/THIRD_PARTY_LICENSES", 0o644),
			},
		},
	})
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	out, err := os.Create(r.binary(a) + "." + format)
	if err != nil {
		return err
	}
	if err := packager.Package(info, out); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func file(from, to string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode}}
}
