package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// writeBOM writes the bill of materials of a binary, in CycloneDX: the modules that the linker has
// written into it, and its Go.
func (r *release) writeBOM(binary string) error {
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	built, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	hashes := []cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	components := []cyclonedx.Component{component("std", built.GoVersion[len("go"):])}
	for _, module := range built.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		components = append(components, component(module.Path, module.Version))
	}
	bom := cyclonedx.NewBOM()
	bom.Components = &components
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.date.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			Type:    cyclonedx.ComponentTypeApplication,
			BOMRef:  filepath.Base(binary),
			Name:    filepath.Base(binary),
			Version: r.version,
			Hashes:  &hashes,
		},
	}
	out, err := os.Create(binary + ".cdx.json")
	if err != nil {
		return err
	}
	if err := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func component(path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{
		Type:       cyclonedx.ComponentTypeLibrary,
		BOMRef:     url,
		Name:       path,
		Version:    version,
		PackageURL: url,
	}
}
